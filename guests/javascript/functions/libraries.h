// Libraries that are bundled from packages when the guest is built, and evaluated when something needs them.
#ifndef CELLAR_JAVASCRIPT_LIBRARIES_H
#define CELLAR_JAVASCRIPT_LIBRARIES_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name;
    // What JS_WriteObject made of a script whose value is a function.
    const uint8_t *bytecode;
    size_t length;
} library_t;

// Written by the builder; ends with an entry without a name.
extern const library_t libraries[];

#endif
