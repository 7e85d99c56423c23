// Streams of zlib and of Brotli. A coder is taken forward one step at a time: it reads some input, and gives some output.
#include "convert.h"
#include "engine/engine.h"
#include "functions.h"

#include <brotli/decode.h>
#include <brotli/encode.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

// What is read and made at most in one step, after which it is asked whether the cell must stop.
#define STEP_BYTES (64u << 10)

// Brotli at its best works on all that it has gathered at once: it is made to work after this much.
#define SLOW_BYTES (256u << 10)
#define SLOW_QUALITY 10

typedef enum { DEFLATE, INFLATE, BROTLI_ENCODE, BROTLI_DECODE, KIND_COUNT } kind_t;

typedef struct {
    kind_t kind;
    z_stream zlib;
    uint8_t *dictionary;
    size_t dictionary_bytes;
    BrotliEncoderState *encoder;
    BrotliDecoderState *decoder;
    uint32_t quality;
    size_t gathered;
} coder_t;

static JSClassID coder_class;

static void free_coder(JSRuntime *rt, JSValueConst value) {
    coder_t *coder = JS_GetOpaque(value, coder_class);
    if (coder == NULL)
        return;
    if (coder->kind == DEFLATE)
        deflateEnd(&coder->zlib);
    if (coder->kind == INFLATE)
        inflateEnd(&coder->zlib);
    if (coder->encoder != NULL)
        BrotliEncoderDestroyInstance(coder->encoder);
    if (coder->decoder != NULL)
        BrotliDecoderDestroyInstance(coder->decoder);
    free(coder->dictionary);
    free(coder);
}

// An object of a coder of that kind, which belongs to it.
static JSValue new_coder(JSContext *ctx, kind_t kind, coder_t **coder) {
    JSValue object = JS_NewObjectClass(ctx, (int)coder_class);
    if (JS_IsException(object))
        return object;
    *coder = calloc(1, sizeof **coder);
    if (*coder == NULL) {
        JS_FreeValue(ctx, object);
        return JS_ThrowOutOfMemory(ctx);
    }
    (*coder)->kind = kind;
    JS_SetOpaque(object, *coder);
    return object;
}

// Keeps a dictionary that came as an argument. False with an exception.
static bool take_dictionary(JSContext *ctx, coder_t *coder, JSValueConst value) {
    size_t length;
    const uint8_t *bytes = bytes_of(ctx, value, &length);
    if (bytes == NULL)
        return true;
    coder->dictionary = malloc(length + 1);
    if (coder->dictionary == NULL) {
        JS_ThrowOutOfMemory(ctx);
        return false;
    }
    memcpy(coder->dictionary, bytes, length);
    coder->dictionary_bytes = length;
    return true;
}

static JSValue failed(JSContext *ctx, JSValue object, int status) {
    JS_FreeValue(ctx, object);
    return status == Z_MEM_ERROR ? JS_ThrowOutOfMemory(ctx) : JS_ThrowRangeError(ctx, "Bad dictionary");
}

// newDeflate(windowBits, level, memLevel, strategy, dictionary): zlib says the format by the number of bits
static JSValue new_deflate(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t bits, level, memory, strategy;
    coder_t *coder;
    if (JS_ToInt32(ctx, &bits, argv[0]) || JS_ToInt32(ctx, &level, argv[1]) || JS_ToInt32(ctx, &memory, argv[2]) ||
        JS_ToInt32(ctx, &strategy, argv[3]))
        return JS_EXCEPTION;
    JSValue object = new_coder(ctx, DEFLATE, &coder);
    if (JS_IsException(object))
        return object;
    if (!take_dictionary(ctx, coder, argv[4])) {
        JS_FreeValue(ctx, object);
        return JS_EXCEPTION;
    }
    int status = deflateInit2(&coder->zlib, level, Z_DEFLATED, bits, memory, strategy);
    if (status == Z_OK && coder->dictionary != NULL)
        status = deflateSetDictionary(&coder->zlib, coder->dictionary, (uInt)coder->dictionary_bytes);
    return status == Z_OK ? object : failed(ctx, object, status);
}

// newInflate(windowBits, dictionary)
static JSValue new_inflate(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t bits;
    coder_t *coder;
    if (JS_ToInt32(ctx, &bits, argv[0]))
        return JS_EXCEPTION;
    JSValue object = new_coder(ctx, INFLATE, &coder);
    if (JS_IsException(object))
        return object;
    if (!take_dictionary(ctx, coder, argv[1])) {
        JS_FreeValue(ctx, object);
        return JS_EXCEPTION;
    }
    int status = inflateInit2(&coder->zlib, bits);
    if (status == Z_OK && coder->dictionary != NULL && bits < 0)
        status = inflateSetDictionary(&coder->zlib, coder->dictionary, (uInt)coder->dictionary_bytes);
    return status == Z_OK ? object : failed(ctx, object, status);
}

// newBrotli(encodes, parameters): the parameters are pairs of a number and a value, in one array
static JSValue new_brotli(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    bool encodes = JS_ToBool(ctx, argv[0]);
    coder_t *coder;
    JSValue object = new_coder(ctx, encodes ? BROTLI_ENCODE : BROTLI_DECODE, &coder);
    if (JS_IsException(object))
        return object;
    if (encodes)
        coder->encoder = BrotliEncoderCreateInstance(NULL, NULL, NULL);
    else
        coder->decoder = BrotliDecoderCreateInstance(NULL, NULL, NULL);
    if (coder->encoder == NULL && coder->decoder == NULL) {
        JS_FreeValue(ctx, object);
        return JS_ThrowOutOfMemory(ctx);
    }
    coder->quality = BROTLI_DEFAULT_QUALITY;
    int64_t length = 0;
    if (JS_GetLength(ctx, argv[1], &length)) {
        JS_FreeValue(ctx, object);
        return JS_EXCEPTION;
    }
    for (uint32_t i = 0; i + 1 < length; i += 2) {
        uint32_t pair[2];
        for (uint32_t j = 0; j < 2; j++) {
            JSValue value = JS_GetPropertyUint32(ctx, argv[1], i + j);
            int bad = JS_ToUint32(ctx, &pair[j], value);
            JS_FreeValue(ctx, value);
            if (bad) {
                JS_FreeValue(ctx, object);
                return JS_EXCEPTION;
            }
        }
        if (encodes && pair[0] == BROTLI_PARAM_QUALITY)
            coder->quality = pair[1];
        bool set = encodes ? BrotliEncoderSetParameter(coder->encoder, (BrotliEncoderParameter)pair[0], pair[1])
                           : BrotliDecoderSetParameter(coder->decoder, (BrotliDecoderParameter)pair[0], pair[1]);
        if (!set) {
            JS_FreeValue(ctx, object);
            return JS_ThrowRangeError(ctx, "Initialization failed");
        }
    }
    return object;
}

// What a step came to: bytes read and made, whether more can be made of what was read, what zlib or Brotli says of it.
typedef struct {
    size_t taken, made;
    bool has_more, has_ended;
    int status;
    const char *message;
} step_t;

// Takes zlib one step forward; `flush` is one of zlib's numbers.
static step_t step_zlib(coder_t *coder, const uint8_t *input, size_t length, int flush, uint8_t *output) {
    z_stream *zlib = &coder->zlib;
    zlib->next_in = (Bytef *)input;
    zlib->avail_in = (uInt)length;
    zlib->next_out = output;
    zlib->avail_out = STEP_BYTES;
    int status = coder->kind == DEFLATE ? deflate(zlib, flush) : inflate(zlib, flush);
    if (status == Z_NEED_DICT && coder->dictionary != NULL) {
        status = inflateSetDictionary(zlib, coder->dictionary, (uInt)coder->dictionary_bytes);
        if (status == Z_OK)
            status = inflate(zlib, flush);
        else
            zlib->msg = "Bad dictionary";
    } else if (status == Z_NEED_DICT) {
        zlib->msg = "Missing dictionary";
    }
    step_t step = {.taken = length - zlib->avail_in, .made = STEP_BYTES - zlib->avail_out, .has_ended = status == Z_STREAM_END};
    step.has_more = zlib->avail_out == 0;
    // That nothing could be done is no failure while more may come.
    step.status = status == Z_STREAM_END || (status == Z_BUF_ERROR && flush != Z_FINISH) ? Z_OK : status;
    if (step.status == Z_BUF_ERROR && (step.has_more || zlib->avail_in > 0))
        step.status = Z_OK;
    if (step.status != Z_OK)
        step.message = step.status == Z_BUF_ERROR ? "unexpected end of file" : zlib->msg != NULL ? zlib->msg : zError(status);
    zlib->next_in = NULL; // the input is another's
    zlib->avail_in = 0;
    return step;
}

static step_t step_encoder(coder_t *coder, const uint8_t *input, size_t length, int operation, uint8_t *output) {
    size_t left = length, room = STEP_BYTES;
    coder->gathered += length;
    if (operation == BROTLI_OPERATION_PROCESS && coder->quality >= SLOW_QUALITY && coder->gathered >= SLOW_BYTES)
        operation = BROTLI_OPERATION_FLUSH;
    bool ok = BrotliEncoderCompressStream(coder->encoder, (BrotliEncoderOperation)operation, &left, &input, &room, &output, NULL);
    if (operation != BROTLI_OPERATION_PROCESS && left == 0 && !BrotliEncoderHasMoreOutput(coder->encoder))
        coder->gathered = 0;
    return (step_t){
        .taken = length - left, .made = STEP_BYTES - room, .status = ok ? Z_OK : Z_DATA_ERROR, .message = "Compression failed",
        .has_more = BrotliEncoderHasMoreOutput(coder->encoder), .has_ended = BrotliEncoderIsFinished(coder->encoder),
    };
}

static step_t step_decoder(coder_t *coder, const uint8_t *input, size_t length, int operation, uint8_t *output) {
    size_t left = length, room = STEP_BYTES;
    BrotliDecoderResult result = BrotliDecoderDecompressStream(coder->decoder, &left, &input, &room, &output, NULL);
    step_t step = {.taken = length - left, .made = STEP_BYTES - room};
    step.has_more = result == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT;
    step.has_ended = result == BROTLI_DECODER_RESULT_SUCCESS;
    if (result == BROTLI_DECODER_RESULT_ERROR) {
        step.status = BrotliDecoderGetErrorCode(coder->decoder);
        step.message = BrotliDecoderErrorString((BrotliDecoderErrorCode)step.status);
    } else if (result == BROTLI_DECODER_RESULT_NEEDS_MORE_INPUT && operation == BROTLI_OPERATION_FINISH) {
        step.status = Z_BUF_ERROR;
        step.message = "unexpected end of file";
    }
    return step;
}

// codeStep(coder, bytes, from, flush): output, where to go on in the bytes, whether there is more to make of them, whether the
// stream has ended, and when it failed, the number and words of that
static JSValue code_step(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    coder_t *coder = JS_GetOpaque2(ctx, argv[0], coder_class);
    uint32_t from;
    int32_t flush;
    if (coder == NULL || JS_ToUint32(ctx, &from, argv[2]) || JS_ToInt32(ctx, &flush, argv[3]))
        return JS_EXCEPTION;
    size_t length;
    const uint8_t *input = bytes_of(ctx, argv[1], &length);
    if (input == NULL || from > length)
        return JS_ThrowTypeError(ctx, "a typed array is needed");
    length -= from;
    // Only the last piece is flushed.
    bool is_last = length <= STEP_BYTES;
    if (!is_last)
        length = STEP_BYTES, flush = 0;
    uint8_t *output = malloc(STEP_BYTES);
    if (output == NULL)
        return JS_ThrowOutOfMemory(ctx);
    step_t step = coder->kind == BROTLI_ENCODE   ? step_encoder(coder, input + from, length, flush, output)
                  : coder->kind == BROTLI_DECODE ? step_decoder(coder, input + from, length, flush, output)
                                                 : step_zlib(coder, input + from, length, flush, output);
    if (step.status == Z_MEM_ERROR || must_stop_soon(ctx, step.taken + step.made)) {
        free(output);
        return step.status == Z_MEM_ERROR ? JS_ThrowOutOfMemory(ctx) : JS_EXCEPTION;
    }
    uint8_t *fitting = realloc(output, step.made + 1);
    JSValue result = JS_NewArray(ctx);
    JS_SetPropertyUint32(ctx, result, 0, bytes_from(ctx, fitting == NULL ? output : fitting, step.made));
    JS_SetPropertyUint32(ctx, result, 1, JS_NewUint32(ctx, from + (uint32_t)step.taken));
    JS_SetPropertyUint32(ctx, result, 2, JS_NewBool(ctx, step.has_more || step.taken < length || !is_last));
    JS_SetPropertyUint32(ctx, result, 3, JS_NewBool(ctx, step.has_ended));
    if (step.status != Z_OK) {
        JS_SetPropertyUint32(ctx, result, 4, JS_NewInt32(ctx, step.status));
        JS_SetPropertyUint32(ctx, result, 5, JS_NewString(ctx, step.message));
    }
    return result;
}

// codeTune(coder, level, strategy): of zlib, for what comes; false when what it holds must be written first
static JSValue code_tune(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    coder_t *coder = JS_GetOpaque2(ctx, argv[0], coder_class);
    int32_t level, strategy;
    uint8_t output[16];
    if (coder == NULL || JS_ToInt32(ctx, &level, argv[1]) || JS_ToInt32(ctx, &strategy, argv[2]))
        return JS_EXCEPTION;
    if (coder->kind != DEFLATE)
        return JS_FALSE;
    coder->zlib.next_out = output;
    coder->zlib.avail_out = 0;
    return JS_NewBool(ctx, deflateParams(&coder->zlib, level, strategy) == Z_OK);
}

// crc32(bytes, start)
static JSValue checksum(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    uint32_t start;
    size_t length;
    if (JS_ToUint32(ctx, &start, argv[1]))
        return JS_EXCEPTION;
    const uint8_t *bytes = bytes_of(ctx, argv[0], &length);
    if (bytes == NULL)
        return JS_ThrowTypeError(ctx, "a typed array is needed");
    if (must_stop_soon(ctx, length))
        return JS_EXCEPTION;
    return JS_NewUint32(ctx, (uint32_t)crc32(start, bytes, (uInt)length));
}

void add_compression_functions(JSContext *ctx, JSValueConst host) {
    static const JSClassDef class = {"Coder", .finalizer = free_coder};
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("newDeflate", 5, new_deflate), JS_CFUNC_DEF("newInflate", 2, new_inflate),
        JS_CFUNC_DEF("newBrotli", 2, new_brotli),   JS_CFUNC_DEF("codeStep", 4, code_step),
        JS_CFUNC_DEF("codeTune", 3, code_tune),     JS_CFUNC_DEF("crc32", 2, checksum),
    };
    JS_NewClassID(JS_GetRuntime(ctx), &coder_class);
    JS_NewClass(JS_GetRuntime(ctx), coder_class, &class);
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
