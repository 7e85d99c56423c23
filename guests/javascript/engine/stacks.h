#pragma once
// What a stack says beyond the functions that are being called. Included into quickjs.c, by a patch,
// before what makes stacks; stacks.c and wording.c have the definitions. None of these runs code of the user's.

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

// Throws that a value cannot be iterated over, and names the expression that gave it when the source has it.
static no_inline JSValue cellar_throw_not_iterable(JSContext *ctx, JSValueConst value);

// Throws that nothing can be taken out of undefined or null. `pc` is the code behind the attempt, which says what was wanted.
static no_inline JSValue cellar_throw_not_destructured(JSContext *ctx, JSValueConst value, const uint8_t *pc);

// Throws that a class was called without `new`.
static no_inline void cellar_throw_class_called(JSContext *ctx, JSValueConst function);

// Throws that a value has no JSON because it is among `stack`, an array of the objects that it lies in.
static no_inline void cellar_throw_circular(JSContext *ctx, JSValueConst stack, JSValueConst value);

// An asynchronous function goes that waits for what nobody can settle any more: notes where, for the cell it belongs to.
static no_inline void cellar_note_abandoned(JSRuntime *rt, JSAsyncFunctionData *function);

// Forgets where the last exception came from, so that the next one tells where it does.
static void cellar_forget_place(JSContext *ctx);

// What an object did not let a program do with a property.
typedef enum {
    CELLAR_READ_ONLY,
    CELLAR_NO_SETTER,
    CELLAR_NOT_ADDED,
    CELLAR_NOT_DEFINED,
    CELLAR_NOT_REDEFINED,
    CELLAR_NOT_DELETED,
} cellar_refusal_t;

// Throws that, where `flags` or the code that runs are strict, and returns -1; else returns false.
static no_inline int cellar_refuse(JSContext *ctx, int flags, cellar_refusal_t refusal, JSValueConst object, JSAtom name);

// Throws a TypeError about a value, which stands between two texts.
static no_inline JSValue cellar_throw_value(JSContext *ctx, const char *before, JSValueConst value, const char *after);

// Throws that a value makes no objects, and names the expression that gave it when the source has it.
static no_inline JSValue cellar_throw_not_constructor(JSContext *ctx, JSValueConst value);

// Throws that one of the built-in constructors was called without `new`.
static no_inline JSValue cellar_throw_called_without_new(JSContext *ctx, JSValueConst function);

// Throws that a private method or accessor of a class is none of the object that it was looked for in.
static no_inline void cellar_throw_other_brand(JSContext *ctx, JSValueConst method);

// Throws that an offset or a length, named by `what`, does not suit the elements of a typed array.
static no_inline JSValue cellar_throw_multiple(JSContext *ctx, const char *what, int class_id, int size);

// Throws that a name cannot be looked for in what is no object.
static no_inline void cellar_throw_not_in(JSContext *ctx, JSValueConst name, JSValueConst value);

// Lets go of what weak references kept for the job that has ended.
void cellar_clear_kept_objects(JSRuntime *rt);
