// What a stack says beyond the functions that are being called. Included into quickjs.c, by a patch,
// before what makes stacks; stacks.c has the definitions. None of these runs code of the user's.

// Puts the first line of a stack, "Name: message", when the value is an error.
static void cellar_put_headline(JSContext *ctx, JSValueConst error, DynBuf *out);

// Puts a function of a program: `prefix`, its name, and where it is. Returns false for any other, which has no frame.
static bool cellar_put_frame(JSContext *ctx, JSStackFrame *frame, const char *prefix, DynBuf *out);

// Puts up to `limit` functions that await the outermost one that runs, each as a frame.
static void cellar_put_awaiting(JSContext *ctx, JSStackFrame *outermost, DynBuf *out, int limit);

// Throws what an import declaration throws when the module does not export a name.
static void cellar_throw_no_export(JSContext *ctx, JSAtom message);

// Throws that a value is not a function, and names the expression that gave it when the source has it.
static JSValue cellar_throw_not_function(JSContext *ctx);

// Forgets where the last exception came from, so that the next one tells where it does.
static void cellar_forget_place(JSContext *ctx);
