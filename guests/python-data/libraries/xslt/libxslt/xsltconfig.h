/* What libxslt's own build would have written of what it can do: everything but what loads code, and what looks for mistakes
   in stylesheets. */
#ifndef __XML_XSLTCONFIG_H__
#define __XML_XSLTCONFIG_H__

#define LIBXSLT_DOTTED_VERSION "1.1.45"
#define LIBXSLT_VERSION 10145
#define LIBXSLT_VERSION_STRING "10145"
#define LIBXSLT_VERSION_EXTRA ""
#define WITH_PROFILER
#define LIBXSLT_ATTR_FORMAT(fmt, args) __attribute__((__format__(__printf__, fmt, args)))
#define LIBXSLT_PUBLIC

#endif
