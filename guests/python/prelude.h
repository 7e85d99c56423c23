/* The prelude's files and the extension modules, which the build turns into C. */
#ifndef CELLAR_PYTHON_PRELUDE_H
#define CELLAR_PYTHON_PRELUDE_H

struct cellar_prelude_file {
    /* Name of the module in the package `_cellar_prelude`, with dots. */
    const char *name;
    /* Path below the prelude's folder, as tracebacks have it; null for a package. */
    const char *path;
    /* Null for a package. */
    const char *source;
};

/* In the order in which they are run, packages before their modules; ends with a null name. The last is the module of entry points. */
extern const struct cellar_prelude_file cellar_prelude[];

/* Digest of the standard library that is mounted beside the guest: its modules are in the baked image too. */
extern const char cellar_library_digest[];

#endif
