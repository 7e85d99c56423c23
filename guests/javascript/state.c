// The state that the files share; see state.h.
#include "state.h"

JSRuntime *runtime;
JSContext *ctx;
kernel_configuration_t configuration;
bool environment_read;
uint64_t started_at;
ending_t ending;
cellar_kernel_types_stop_reason_t stop_reason;
int32_t exit_status;
exit_code_t exit_code;
uint64_t script_deadline;
bool script_expired;
JSValue cellar_context = JS_UNDEFINED;

JSContext *enter(void) {
    JS_UpdateStackTop(runtime);
    return ctx;
}

void enter_context(JSValue context) {
    JSValue left = cellar_context;
    cellar_context = context;
    JS_FreeValue(ctx, left);
}

void drop_exception(void) {
    JS_FreeValue(ctx, JS_GetException(ctx));
    ending = ENDS_NOT;
}
