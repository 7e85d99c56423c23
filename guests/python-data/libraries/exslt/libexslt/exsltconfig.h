/* What libexslt's own build would have written of what it can do: everything but digests and ciphers. */
#ifndef __XML_EXSLTCONFIG_H__
#define __XML_EXSLTCONFIG_H__

#define LIBEXSLT_DOTTED_VERSION "0.8.25"
#define LIBEXSLT_VERSION 825
#define LIBEXSLT_VERSION_STRING "825"
#define LIBEXSLT_VERSION_EXTRA ""

#endif
