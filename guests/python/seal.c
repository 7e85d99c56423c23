/* Sets all memory aside that is free when baking ends, so that what a session allocates lies side by side: in the holes of
   the image each small object would fall on a page of its own, of which the kernel then needs a copy. What was allocated by
   then is never free again, for the same reason. */
#define Py_BUILD_CORE 1
#include "shim.h"

#include "glue.h"
#include "pycore_interp.h"

/* Objects below this address are not freed. Read by CPython's allocator. */
uintptr_t cellar_sealed;

/* Takes what is left in the pools of a size. */
static void fill_pools(struct _obmalloc_state *state, unsigned int class) {
    poolp *first = &state->pools.used[class + class];
    while (*first != (*first)->nextpool) {
        PyObject_Malloc(INDEX2SIZE(class));
    }
}

void cellar_seal_memory(void) {
    struct _obmalloc_state *state = PyInterpreterState_Get()->obmalloc;
    /* Empties the free lists of objects, which it would not do while the prelude has it off. */
    int collected = PyGC_Enable();
    PyGC_Collect();
    if (!collected) {
        PyGC_Disable();
    }
    for (unsigned int class = 0; class < NB_SMALL_SIZE_CLASSES; class++) {
        fill_pools(state, class);
    }
    while (state->mgmt.usable_arenas != NULL) {
        PyObject_Malloc(SMALL_REQUEST_THRESHOLD);
        fill_pools(state, NB_SMALL_SIZE_CLASSES - 1);
    }
    cellar_sealed = glue_seal_memory();
    /* The arena that the first objects of a session go to. */
    PyObject_Free(PyObject_Malloc(1));
}
