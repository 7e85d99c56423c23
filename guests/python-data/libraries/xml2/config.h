/* What libxml2's own build would have found out of this target. */
#define HAVE_STDINT_H 1
#define HAVE_DECL_GETENTROPY 1
#define HAVE_DECL_GLOB 0
#define HAVE_DECL_MMAP 0
#define XML_SYSCONFDIR "/etc"
/* The guest has it, though the C library has not. */
int dup(int descriptor);
