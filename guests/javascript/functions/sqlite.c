// SQLite for the prelude: databases, statements, and functions in JavaScript that statements call.
#include "convert.h"
#include "engine/engine.h"
#include "functions.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Steps of SQLite's machine after which it is asked whether the cell must stop, and what they count as.
#define STEPS 1000
#define STEPS_BYTES (16u << 10)

#define SAFE_INTEGER_MAX 9007199254740991

// A connection. Statements keep it, since SQLite needs it when one is finished.
typedef struct {
    sqlite3 *handle;
    JSContext *ctx;
    uint32_t users;
    // Statements that run now: a function that one of them calls cannot close it.
    uint32_t running;
} database_t;

typedef struct {
    sqlite3_stmt *handle;
    database_t *database;
} statement_t;

// What a function of SQL calls.
typedef struct {
    database_t *database;
    JSValue function;
    bool with_bigints;
} function_t;

static JSClassID database_class, statement_class;

static void release(database_t *database) {
    if (--database->users > 0)
        return;
    sqlite3_close_v2(database->handle);
    free(database);
}

static void free_database(JSRuntime *rt, JSValueConst value) {
    database_t *database = JS_GetOpaque(value, database_class);
    if (database != NULL)
        release(database);
}

static void free_statement(JSRuntime *rt, JSValueConst value) {
    statement_t *statement = JS_GetOpaque(value, statement_class);
    if (statement == NULL)
        return;
    sqlite3_finalize(statement->handle);
    release(statement->database);
    free(statement);
}

// Asked by SQLite while it works: to give up leaves the exception pending that says why.
static int must_give_up(void *opaque) {
    return must_stop_soon(((database_t *)opaque)->ctx, STEPS_BYTES);
}

// Throws what SQLite says went wrong, as Node does; an exception that a function left stays.
static JSValue throw_sqlite(JSContext *ctx, sqlite3 *handle, int status) {
    if (JS_HasException(ctx))
        return JS_EXCEPTION;
    if (status == SQLITE_NOMEM)
        return JS_ThrowOutOfMemory(ctx);
    JSValue error = JS_NewError(ctx);
    const char *message = handle == NULL ? sqlite3_errstr(status) : sqlite3_errmsg(handle);
    int number = handle == NULL ? status : sqlite3_extended_errcode(handle);
    JS_DefinePropertyValueStr(ctx, error, "message", JS_NewString(ctx, message), JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
    JS_DefinePropertyValueStr(ctx, error, "code", JS_NewString(ctx, "ERR_SQLITE_ERROR"), JS_PROP_C_W_E);
    JS_DefinePropertyValueStr(ctx, error, "errcode", JS_NewInt32(ctx, number), JS_PROP_C_W_E);
    JS_DefinePropertyValueStr(ctx, error, "errstr", JS_NewString(ctx, sqlite3_errstr(number)), JS_PROP_C_W_E);
    return JS_Throw(ctx, error);
}

// sqliteOpen(path, readOnly, foreignKeys, doubleQuotedStrings, milliseconds)
static JSValue open_database(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t patience;
    if (JS_ToInt32(ctx, &patience, argv[4]))
        return JS_EXCEPTION;
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    JSValue object = JS_NewObjectClass(ctx, (int)database_class);
    database_t *database = calloc(1, sizeof *database);
    if (database == NULL || JS_IsException(object)) {
        JS_FreeCString(ctx, path);
        JS_FreeValue(ctx, object);
        free(database);
        return JS_ThrowOutOfMemory(ctx);
    }
    note_wait();
    *database = (database_t){.ctx = ctx, .users = 1};
    JS_SetOpaque(object, database);
    int flags = JS_ToBool(ctx, argv[1]) ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int status = sqlite3_open_v2(path, &database->handle, flags | SQLITE_OPEN_URI, NULL);
    JS_FreeCString(ctx, path);
    if (status != SQLITE_OK) {
        throw_sqlite(ctx, database->handle, status);
        JS_FreeValue(ctx, object);
        return JS_EXCEPTION;
    }
    sqlite3_extended_result_codes(database->handle, 1);
    sqlite3_busy_timeout(database->handle, patience);
    sqlite3_progress_handler(database->handle, STEPS, must_give_up, database);
    bool quoted = JS_ToBool(ctx, argv[3]);
    sqlite3_db_config(database->handle, SQLITE_DBCONFIG_ENABLE_FKEY, JS_ToBool(ctx, argv[2]), NULL);
    sqlite3_db_config(database->handle, SQLITE_DBCONFIG_DQS_DML, quoted, NULL);
    sqlite3_db_config(database->handle, SQLITE_DBCONFIG_DQS_DDL, quoted, NULL);
    sqlite3_db_config(database->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return object;
}

// What 'localtime' asks: the time of day in the zone that the prelude has set.
static int local_time(const time_t *time, struct tm *parts) {
    time_t local = *time - (time_t)cellar_zone_offset((int64_t)*time * 1000, false) * 60;
    return gmtime_r(&local, parts) == NULL;
}

static database_t *database_of(JSContext *ctx, JSValueConst value) {
    return JS_GetOpaque2(ctx, value, database_class);
}

static statement_t *statement_of(JSContext *ctx, JSValueConst value) {
    return JS_GetOpaque2(ctx, value, statement_class);
}

// sqliteExec(database, sql)
static JSValue execute(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    database_t *database = database_of(ctx, argv[0]);
    const char *sql = database == NULL ? NULL : JS_ToCString(ctx, argv[1]);
    if (sql == NULL)
        return JS_EXCEPTION;
    note_wait();
    database->running++;
    int status = sqlite3_exec(database->handle, sql, NULL, NULL, NULL);
    database->running--;
    JS_FreeCString(ctx, sql);
    return status == SQLITE_OK && !JS_HasException(ctx) ? JS_UNDEFINED : throw_sqlite(ctx, database->handle, status);
}

// sqliteClose(database): false when a statement runs
static JSValue close_database(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    database_t *database = database_of(ctx, argv[0]);
    if (database == NULL)
        return JS_EXCEPTION;
    if (database->running > 0)
        return JS_FALSE;
    // What statements still hold of it goes with them.
    sqlite3_close_v2(database->handle);
    database->handle = NULL;
    return JS_TRUE;
}

// sqlitePrepare(database, sql)
static JSValue prepare(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    database_t *database = database_of(ctx, argv[0]);
    const char *sql = database == NULL ? NULL : JS_ToCString(ctx, argv[1]);
    if (sql == NULL)
        return JS_EXCEPTION;
    JSValue object = JS_NewObjectClass(ctx, (int)statement_class);
    statement_t *statement = calloc(1, sizeof *statement);
    if (statement == NULL || JS_IsException(object)) {
        JS_FreeCString(ctx, sql);
        JS_FreeValue(ctx, object);
        free(statement);
        return JS_ThrowOutOfMemory(ctx);
    }
    note_wait();
    statement->database = database;
    database->users++;
    JS_SetOpaque(object, statement);
    int status = sqlite3_prepare_v2(database->handle, sql, -1, &statement->handle, NULL);
    JS_FreeCString(ctx, sql);
    if (status == SQLITE_OK && !JS_HasException(ctx))
        return object;
    throw_sqlite(ctx, database->handle, status);
    JS_FreeValue(ctx, object);
    return JS_EXCEPTION;
}

// ---- Values

static JSValue throw_too_large(JSContext *ctx, int64_t value) {
    JSValue error = JS_NewError(ctx);
    char message[96];
    int length = snprintf(message, sizeof message, "Value is too large to be represented as a JavaScript number: %lld", (long long)value);
    JS_DefinePropertyValueStr(ctx, error, "message", JS_NewStringLen(ctx, message, (size_t)length), JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
    JS_DefinePropertyValueStr(ctx, error, "code", JS_NewString(ctx, "ERR_OUT_OF_RANGE"), JS_PROP_C_W_E);
    return JS_Throw(ctx, error);
}

static JSValue integer_from(JSContext *ctx, int64_t value, bool as_bigint) {
    if (as_bigint)
        return JS_NewBigInt64(ctx, value);
    return value > SAFE_INTEGER_MAX || value < -SAFE_INTEGER_MAX ? throw_too_large(ctx, value) : JS_NewInt64(ctx, value);
}

static JSValue value_from(JSContext *ctx, sqlite3_value *value, bool with_bigints) {
    switch (sqlite3_value_type(value)) {
    case SQLITE_INTEGER:
        return integer_from(ctx, sqlite3_value_int64(value), with_bigints);
    case SQLITE_FLOAT:
        return JS_NewFloat64(ctx, sqlite3_value_double(value));
    case SQLITE_TEXT: {
        const char *text = (const char *)sqlite3_value_text(value);
        return text == NULL ? JS_ThrowOutOfMemory(ctx) : JS_NewStringLen(ctx, text, (size_t)sqlite3_value_bytes(value));
    }
    case SQLITE_BLOB: {
        const uint8_t *bytes = sqlite3_value_blob(value);
        return JS_NewUint8ArrayCopy(ctx, bytes == NULL ? (const uint8_t *)"" : bytes, (size_t)sqlite3_value_bytes(value));
    }
    default:
        return JS_NULL;
    }
}

// What a value of JavaScript is to SQLite; one that is none of these is nothing.
typedef enum { IS_NOTHING, IS_NULL, IS_NUMBER, IS_BIGINT, IS_TEXT, IS_BYTES } sort_t;

static sort_t sort_of(JSContext *ctx, JSValueConst value) {
    size_t length;
    if (JS_IsNull(value))
        return IS_NULL;
    if (JS_IsNumber(value))
        return IS_NUMBER;
    if (JS_IsBigInt(value))
        return IS_BIGINT;
    if (JS_IsString(value))
        return IS_TEXT;
    return JS_IsObject(value) && bytes_of(ctx, value, &length) != NULL ? IS_BYTES : IS_NOTHING;
}

// sqliteBind(statement, index, value): false when SQLite has no such value
static JSValue bind(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    statement_t *statement = statement_of(ctx, argv[0]);
    int32_t index;
    if (statement == NULL || JS_ToInt32(ctx, &index, argv[1]))
        return JS_EXCEPTION;
    int status = SQLITE_OK;
    switch (sort_of(ctx, argv[2])) {
    case IS_NOTHING:
        return JS_FALSE;
    case IS_NULL:
        status = sqlite3_bind_null(statement->handle, index);
        break;
    case IS_NUMBER: {
        double number;
        JS_ToFloat64(ctx, &number, argv[2]);
        status = sqlite3_bind_double(statement->handle, index, number);
        break;
    }
    case IS_BIGINT: {
        int64_t number;
        if (JS_ToBigInt64(ctx, &number, argv[2]))
            return JS_EXCEPTION;
        status = sqlite3_bind_int64(statement->handle, index, number);
        break;
    }
    case IS_TEXT: {
        size_t length;
        const char *text = JS_ToCStringLen(ctx, &length, argv[2]);
        if (text == NULL)
            return JS_EXCEPTION;
        status = sqlite3_bind_text64(statement->handle, index, text, length, SQLITE_TRANSIENT, SQLITE_UTF8);
        JS_FreeCString(ctx, text);
        break;
    }
    case IS_BYTES: {
        size_t length;
        const uint8_t *bytes = bytes_of(ctx, argv[2], &length);
        status = sqlite3_bind_blob64(statement->handle, index, bytes, length, SQLITE_TRANSIENT);
        break;
    }
    }
    return status == SQLITE_OK ? JS_TRUE : throw_sqlite(ctx, statement->database->handle, status);
}

// ---- Statements

// sqliteStep(statement, withBigints): the values of the next row; undefined when there is none
static JSValue step(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    statement_t *statement = statement_of(ctx, argv[0]);
    bool with_bigints = JS_ToBool(ctx, argv[1]);
    if (statement == NULL)
        return JS_EXCEPTION;
    statement->database->running++;
    int status = sqlite3_step(statement->handle);
    statement->database->running--;
    if (JS_HasException(ctx) || (status != SQLITE_ROW && status != SQLITE_DONE)) {
        throw_sqlite(ctx, statement->database->handle, status);
        sqlite3_reset(statement->handle);
        return JS_EXCEPTION;
    }
    if (status == SQLITE_DONE)
        return JS_UNDEFINED;
    JSValue row = JS_NewArray(ctx);
    int count = sqlite3_data_count(statement->handle);
    for (int i = 0; i < count && !JS_IsException(row); i++) {
        JSValue value = value_from(ctx, sqlite3_column_value(statement->handle, i), with_bigints);
        if (JS_IsException(value) || JS_SetPropertyUint32(ctx, row, (uint32_t)i, value) < 0) {
            JS_FreeValue(ctx, row);
            return JS_EXCEPTION;
        }
    }
    return row;
}

// sqliteReset(statement, forget): to begin again, with what is bound unless that is to be forgotten
static JSValue reset(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    statement_t *statement = statement_of(ctx, argv[0]);
    if (statement == NULL)
        return JS_EXCEPTION;
    sqlite3_reset(statement->handle);
    if (JS_ToBool(ctx, argv[1]))
        sqlite3_clear_bindings(statement->handle);
    return JS_UNDEFINED;
}

static JSValue text_or_null(JSContext *ctx, const char *text) {
    return text == NULL ? JS_NULL : JS_NewString(ctx, text);
}

// sqliteColumns(statement): for each its name, and where it comes from: column, table, database, type
static JSValue columns(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    statement_t *statement = statement_of(ctx, argv[0]);
    if (statement == NULL)
        return JS_EXCEPTION;
    JSValue list = JS_NewArray(ctx);
    for (int i = 0; i < sqlite3_column_count(statement->handle); i++) {
        const char *texts[] = {sqlite3_column_name(statement->handle, i), sqlite3_column_origin_name(statement->handle, i),
                               sqlite3_column_table_name(statement->handle, i), sqlite3_column_database_name(statement->handle, i),
                               sqlite3_column_decltype(statement->handle, i)};
        for (uint32_t j = 0; j < 5; j++)
            JS_SetPropertyUint32(ctx, list, (uint32_t)i * 5 + j, text_or_null(ctx, texts[j]));
    }
    return list;
}

// sqliteParameters(statement): their names, or null, in order
static JSValue parameters(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    statement_t *statement = statement_of(ctx, argv[0]);
    if (statement == NULL)
        return JS_EXCEPTION;
    JSValue list = JS_NewArray(ctx);
    for (int i = 1; i <= sqlite3_bind_parameter_count(statement->handle); i++)
        JS_SetPropertyUint32(ctx, list, (uint32_t)i - 1, text_or_null(ctx, sqlite3_bind_parameter_name(statement->handle, i)));
    return list;
}

// sqliteText(statement, expanded): the statement as it was given, or with what is bound in it
static JSValue statement_text(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    statement_t *statement = statement_of(ctx, argv[0]);
    if (statement == NULL)
        return JS_EXCEPTION;
    if (!JS_ToBool(ctx, argv[1]))
        return text_or_null(ctx, sqlite3_sql(statement->handle));
    char *text = sqlite3_expanded_sql(statement->handle);
    JSValue value = text_or_null(ctx, text);
    sqlite3_free(text);
    return value;
}

// sqliteState(database, withBigints): rows that the last statement changed, the last row's number, whether a transaction is
// open, and the path of the file
static JSValue state(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    database_t *database = database_of(ctx, argv[0]);
    bool with_bigints = JS_ToBool(ctx, argv[1]);
    if (database == NULL)
        return JS_EXCEPTION;
    JSValue values[] = {
        integer_from(ctx, sqlite3_changes64(database->handle), with_bigints),
        integer_from(ctx, sqlite3_last_insert_rowid(database->handle), with_bigints),
        JS_NewBool(ctx, !sqlite3_get_autocommit(database->handle)),
        text_or_null(ctx, sqlite3_db_filename(database->handle, "main")),
    };
    JSValue list = JS_NewArray(ctx);
    for (uint32_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (JS_IsException(values[i]) || JS_SetPropertyUint32(ctx, list, i, values[i]) < 0) {
            JS_FreeValue(ctx, list);
            return JS_EXCEPTION;
        }
    }
    return list;
}

// ---- Functions

static void answer_with(JSContext *ctx, sqlite3_context *call, JSValueConst value) {
    size_t length;
    switch (sort_of(ctx, value)) {
    case IS_NUMBER: {
        double number;
        JS_ToFloat64(ctx, &number, value);
        sqlite3_result_double(call, number);
        break;
    }
    case IS_BIGINT: {
        int64_t number = 0;
        JS_ToBigInt64(ctx, &number, value);
        sqlite3_result_int64(call, number);
        break;
    }
    case IS_TEXT: {
        const char *text = JS_ToCStringLen(ctx, &length, value);
        if (text == NULL)
            sqlite3_result_error_nomem(call);
        else
            sqlite3_result_text64(call, text, length, SQLITE_TRANSIENT, SQLITE_UTF8);
        JS_FreeCString(ctx, text);
        break;
    }
    case IS_BYTES: {
        const uint8_t *bytes = bytes_of(ctx, value, &length);
        sqlite3_result_blob64(call, bytes, length, SQLITE_TRANSIENT);
        break;
    }
    case IS_NOTHING:
        if (!JS_IsUndefined(value)) {
            sqlite3_result_error(call, "Returned JavaScript value cannot be converted to a SQLite value", -1);
            break;
        }
        // fallthrough
    case IS_NULL:
        sqlite3_result_null(call);
    }
}

static void call_function(sqlite3_context *call, int count, sqlite3_value **given) {
    function_t *entry = sqlite3_user_data(call);
    JSContext *ctx = entry->database->ctx;
    JSValue *arguments = calloc((size_t)count + 1, sizeof *arguments);
    if (arguments == NULL)
        return sqlite3_result_error_nomem(call);
    bool ok = true;
    for (int i = 0; i < count; i++) {
        arguments[i] = ok ? value_from(ctx, given[i], entry->with_bigints) : JS_UNDEFINED;
        ok = ok && !JS_IsException(arguments[i]);
    }
    JSValue result = ok ? JS_Call(ctx, entry->function, JS_UNDEFINED, count, (JSValueConst *)arguments) : JS_EXCEPTION;
    // The exception stays pending, and is what the statement throws.
    if (JS_IsException(result))
        sqlite3_result_error(call, "", 0);
    else
        answer_with(ctx, call, result);
    JS_FreeValue(ctx, result);
    for (int i = 0; i < count; i++)
        JS_FreeValue(ctx, arguments[i]);
    free(arguments);
}

static void forget_function(void *opaque) {
    function_t *entry = opaque;
    JS_FreeValue(entry->database->ctx, entry->function);
    free(entry);
}

// sqliteFunction(database, name, count, function, deterministic, direct, withBigints)
static JSValue define_function(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    database_t *database = database_of(ctx, argv[0]);
    int32_t count;
    if (database == NULL || JS_ToInt32(ctx, &count, argv[2]))
        return JS_EXCEPTION;
    const char *name = JS_ToCString(ctx, argv[1]);
    if (name == NULL)
        return JS_EXCEPTION;
    function_t *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        JS_FreeCString(ctx, name);
        return JS_ThrowOutOfMemory(ctx);
    }
    *entry = (function_t){database, JS_DupValue(ctx, argv[3]), JS_ToBool(ctx, argv[6])};
    int flags = SQLITE_UTF8 | (JS_ToBool(ctx, argv[4]) ? SQLITE_DETERMINISTIC : 0) | (JS_ToBool(ctx, argv[5]) ? SQLITE_DIRECTONLY : 0);
    int status = sqlite3_create_function_v2(database->handle, name, count, flags, entry, call_function, NULL, NULL, forget_function);
    JS_FreeCString(ctx, name);
    return status == SQLITE_OK ? JS_UNDEFINED : throw_sqlite(ctx, database->handle, status);
}

void add_sqlite_functions(JSContext *ctx, JSValueConst host) {
    static const JSClassDef database = {"Database", .finalizer = free_database}, statement = {"Statement", .finalizer = free_statement};
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("sqliteOpen", 5, open_database),   JS_CFUNC_DEF("sqliteExec", 2, execute),
        JS_CFUNC_DEF("sqliteClose", 1, close_database),
        JS_CFUNC_DEF("sqlitePrepare", 2, prepare),      JS_CFUNC_DEF("sqliteBind", 3, bind),
        JS_CFUNC_DEF("sqliteStep", 2, step),            JS_CFUNC_DEF("sqliteReset", 2, reset),
        JS_CFUNC_DEF("sqliteColumns", 1, columns),      JS_CFUNC_DEF("sqliteParameters", 1, parameters),
        JS_CFUNC_DEF("sqliteText", 2, statement_text),  JS_CFUNC_DEF("sqliteState", 2, state),
        JS_CFUNC_DEF("sqliteFunction", 7, define_function),
    };
    sqlite3_test_control(SQLITE_TESTCTRL_LOCALTIME_FAULT, 2, local_time);
    JSRuntime *rt = JS_GetRuntime(ctx);
    JS_NewClassID(rt, &database_class);
    JS_NewClassID(rt, &statement_class);
    JS_NewClass(rt, database_class, &database);
    JS_NewClass(rt, statement_class, &statement);
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
