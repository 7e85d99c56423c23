/* What libxml2's own build would have written of what it can do: everything but what loads code. Encodings are those of the C
   library's `iconv`, by which lxml also hands over texts that have characters beyond 16 bits. */
#ifndef __XML_VERSION_H__
#define __XML_VERSION_H__

#define LIBXML_DOTTED_VERSION "2.15.4"
#define LIBXML_VERSION 21504
#define LIBXML_VERSION_STRING "21504"
#define LIBXML_VERSION_EXTRA ""
#define LIBXML_TEST_VERSION xmlCheckVersion(21504);

#define LIBXML_THREAD_ENABLED
#define LIBXML_TREE_ENABLED
#define LIBXML_OUTPUT_ENABLED
#define LIBXML_PUSH_ENABLED
#define LIBXML_READER_ENABLED
#define LIBXML_PATTERN_ENABLED
#define LIBXML_WRITER_ENABLED
#define LIBXML_SAX1_ENABLED
#define LIBXML_VALID_ENABLED
#define LIBXML_HTML_ENABLED
#define LIBXML_C14N_ENABLED
#define LIBXML_CATALOG_ENABLED
#define LIBXML_SGML_CATALOG_ENABLED
#define LIBXML_XPATH_ENABLED
#define LIBXML_XPTR_ENABLED
#define LIBXML_XINCLUDE_ENABLED
#define LIBXML_ICONV_ENABLED
#define LIBXML_ISO8859X_ENABLED
#define LIBXML_DEBUG_ENABLED
#define LIBXML_REGEXP_ENABLED
#define LIBXML_AUTOMATA_ENABLED
#define LIBXML_RELAXNG_ENABLED
#define LIBXML_SCHEMAS_ENABLED
#define LIBXML_SCHEMATRON_ENABLED

#include <libxml/xmlexports.h>

#endif
