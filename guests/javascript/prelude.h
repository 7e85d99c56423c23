// The JavaScript half of the guest.
#ifndef CELLAR_JAVASCRIPT_PRELUDE_H
#define CELLAR_JAVASCRIPT_PRELUDE_H

#include "quickjs.h"

void load_prelude(JSContext *ctx);

// Ends a bake with the pending exception.
void give_up(JSContext *ctx, const char *where);

#endif
