// What errors say of a program's values, and of the expressions in its source that gave them, in V8's words: see stacks.h. Part of
// engine.c. None of this runs code of the program's.

// ---- What is not a function

#define CALLEE_BYTES 100

// The source of the function that runs, and where in it that is; false when that is not known.
static bool find_place(JSContext *c, const char **start, const char **call, const char **end) {
    JSStackFrame *frame = c->rt->current_stack_frame;
    if (frame == NULL || frame->cur_pc == NULL || !js_class_has_bytecode(JS_VALUE_GET_OBJ(frame->cur_func)->class_id))
        return false;
    JSFunctionBytecode *code = JS_VALUE_GET_OBJ(frame->cur_func)->u.func.function_bytecode;
    char file[ATOM_GET_STR_BUF_SIZE];
    unsigned cell;
    size_t length = 0;
    int first_line = 1, first_column = 1;
    const char *at = NULL;
    // Methods of classes say that they begin elsewhere than their source does.
    if (code->filename != JS_ATOM_NULL &&
        sscanf(JS_AtomGetStr(c, file, sizeof file, code->filename), "<cell %u>", &cell) == 1)
        at = cell_text(cell, &length);
    if (at == NULL) {
        at = code->source;
        length = (size_t)code->source_len;
        first_line = code->line_num;
        first_column = code->col_num;
    }
    if (at == NULL)
        return false;
    int column, line = find_line_num(c, code, frame->cur_pc - code->byte_code_buf - 1, &column);
    *start = at;
    *end = at + length;
    for (int i = first_line; i < line && at != NULL; i++) {
        at = memchr(at, '\n', (size_t)(*end - at));
        at = at == NULL ? NULL : at + 1;
    }
    if (at == NULL)
        return false;
    at += line == first_line ? column - first_column : column - 1;
    *call = at;
    return at >= *start && at < *end;
}

// Reads a part of the expression at `at` that begins a call, and stops before the brackets with what it is called with: those of
// its last call, where it is called at once by what it gives.
static const char *call_brackets(const char *at, const char *end) {
    reader_t r = {at, end, NULL, 0};
    const char *found = NULL;
    while (r.at < r.end && in_name(*r.at))
        r.at++;
    for (skip_blanks(&r); r.at < r.end; skip_blanks(&r)) {
        const char *before = r.at;
        if (is_next(&r, "?."))
            r.at += 2;
        if (r.at == r.end || strchr("([`", *r.at) == NULL || (found != NULL && *r.at != '('))
            return found;
        bool is_call = *r.at != '[' && (before != at || *r.at == '`');
        if (is_call)
            found = r.at;
        if (*r.at == '`' ? !skip_quoted(&r) : !skip_brackets(&r))
            return NULL;
    }
    return found;
}

// Throws a TypeError about an expression that was read, if it was: false when there is nothing to say it with.
static bool throw_about(JSContext *c, DynBuf *text, bool is_read, const char *after) {
    bool is_said = is_read && text->size > 0 && text->size <= CALLEE_BYTES && !dbuf_error(text);
    if (is_said)
        JS_ThrowTypeError(c, "%.*s%s", (int)text->size, (const char *)text->buf, after);
    dbuf_free(text);
    return is_said;
}

static JSValue cellar_throw_not_function(JSContext *c) {
    const char *start, *call, *end;
    if (!find_place(c, &start, &call, &end))
        return JS_ThrowTypeError(c, "not a function");
    reader_t place = {call, end, NULL, 0};
    if (is_word_next(&place, "new"))
        return cellar_throw_not_constructor(c, JS_UNDEFINED);
    const char *brackets = call_brackets(call, end);
    DynBuf text;
    js_dbuf_init(c, &text);
    reader_t r = {expression_start(start, call), end, &text, 0};
    if (brackets == NULL || !throw_about(c, &text, read_postfix(&r, brackets), " is not a function"))
        return JS_ThrowTypeError(c, "not a function");
    return JS_EXCEPTION;
}

// ---- What cannot be iterated over, taken apart or written as JSON

// How a value came to be iterated over, as the source has it.
typedef enum {
    ITERATED_ELSEWHERE,
    ITERATED_IN_LOOP,
    ITERATED_AWAITING,
    ITERATED_AS_LIST,
    ITERATED_AS_ARGUMENTS,
    ITERATED_APART,
    ITERATED_EACH_APART,
} iterated_t;

// The bracket that was opened last before `at` and is not closed; NULL when there is none.
static const char *enclosing(const char *start, const char *at) {
    int open = 0;
    while (at > start) {
        char c = *--at;
        if (c == ')' || c == ']' || c == '}')
            open++;
        else if ((c == '(' || c == '[' || c == '{') && open-- == 0)
            return at;
    }
    return NULL;
}

static bool is_declared(const char *start, const char *pattern) {
    const char *before = before_blanks(start, pattern);
    return ends_with_word(start, before, "const") || ends_with_word(start, before, "let") || ends_with_word(start, before, "var");
}

// What is iterated over at `place`, and how.
static iterated_t how_iterated(const char *start, const char *place, const char *end, const char **expression) {
    const char *before = before_blanks(start, place);
    *expression = place;
    const char *bracket = enclosing(start, before);
    if (ends_with_word(start, before, "of"))
        return bracket != NULL && ends_with_word(start, before_blanks(start, bracket), "await") ? ITERATED_AWAITING : ITERATED_IN_LOOP;
    if (before - start >= 3 && memcmp(before - 3, "...", 3) == 0)
        return bracket != NULL && *bracket == '(' ? ITERATED_AS_ARGUMENTS : ITERATED_AS_LIST;
    reader_t r = {place, end, NULL, 0};
    if (*place != '[' || !is_declared(start, place) || !skip_brackets(&r))
        return ITERATED_ELSEWHERE;
    bool is_nested = memchr(place + 1, '[', (size_t)(r.at - place - 1)) != NULL;
    skip_blanks(&r);
    if (is_word_next(&r, "of"))
        return ITERATED_EACH_APART;
    if (is_nested || r.at == r.end || *r.at++ != '=')
        return ITERATED_ELSEWHERE;
    skip_blanks(&r);
    *expression = r.at;
    return ITERATED_APART;
}

static JSValue cellar_throw_not_iterable(JSContext *c, JSValueConst value) {
    const char *start, *call, *end, *expression;
    iterated_t how = find_place(c, &start, &call, &end) ? how_iterated(start, call, end, &expression) : ITERATED_ELSEWHERE;
    bool is_nothing = JS_IsUndefined(value) || JS_IsNull(value);
    if (how == ITERATED_EACH_APART)
        return JS_ThrowTypeError(c, ".for is not iterable");
    if (how == ITERATED_AS_ARGUMENTS && !is_nothing)
        return JS_ThrowTypeError(c, "Spread syntax requires ...iterable[Symbol.iterator] to be a function");
    if (how != ITERATED_ELSEWHERE) {
        DynBuf text;
        js_dbuf_init(c, &text);
        reader_t r = {expression, end, &text, 0};
        bool is_read = read_postfix(&r, NULL), is_call = false;
        if (is_read && text.size > 5 && memcmp(text.buf + text.size - 5, "(...)", 5) == 0) {
            is_call = true;
            text.size -= 5;
            is_read = how == ITERATED_IN_LOOP;
        }
        const char *after = how == ITERATED_AWAITING ? " is not async iterable" : is_call ? " is not a function or its return value is not iterable"
                            : how == ITERATED_AS_ARGUMENTS ? " is not iterable (cannot read property undefined)"
                                                           : " is not iterable";
        if (throw_about(c, &text, is_read, after))
            return JS_EXCEPTION;
    }
    if (is_nothing) {
        const char *word = JS_IsNull(value) ? "object null" : "undefined";
        return JS_ThrowTypeError(c, "%s is not iterable (cannot read property Symbol(Symbol.iterator))", word);
    }
    const char *kind = JS_IsFunction(c, value) ? "function"
                       : JS_IsObject(value)    ? "object"
                       : JS_IsBool(value)      ? "boolean"
                       : JS_IsNumber(value)    ? "number"
                       : JS_IsSymbol(value)    ? "symbol"
                                               : "bigint";
    if (JS_IsObject(value) || JS_IsSymbol(value))
        return JS_ThrowTypeError(c, "%s is not iterable (cannot read property Symbol(Symbol.iterator))", kind);
    const char *text = JS_ToCString(c, value);
    if (text == NULL)
        return JS_EXCEPTION;
    JS_ThrowTypeError(c, "%s %.100s is not iterable (cannot read property Symbol(Symbol.iterator))", kind, text);
    JS_FreeCString(c, text);
    return JS_EXCEPTION;
}

// What is taken apart by a pattern in curly brackets: the first name in it, and what stands for the value.
typedef struct {
    const char *name;
    size_t length;
    bool is_nested, has_default;
} pattern_t;

// Reads the pattern at `place`, and puts the expression that it takes apart where there is one.
static bool read_pattern(const char *start, const char *place, const char *end, pattern_t *pattern, DynBuf *out) {
    reader_t r = {place, end, out, 0};
    if (place == end || *place != '{' || !skip_brackets(&r))
        return false;
    reader_t inner = {place + 1, r.at - 1, NULL, 0};
    skip_blanks(&inner);
    pattern->name = inner.at;
    while (inner.at < inner.end && in_name(*inner.at))
        inner.at++;
    pattern->length = (size_t)(inner.at - pattern->name);
    skip_blanks(&inner);
    pattern->has_default = inner.at < inner.end && *inner.at == '=';
    const char *before = before_blanks(start, place);
    pattern->is_nested = before > start && before[-1] == ':';
    bool is_declaration = is_declared(start, place);
    skip_blanks(&r);
    if (is_declaration && is_word_next(&r, "of")) {
        dbuf_putstr(out, ".for");
        return true;
    }
    bool is_assigned = r.at < r.end && *r.at == '=' && !is_next(&r, "==") && !is_next(&r, "=>");
    if (!is_declaration && is_assigned) {
        // A parameter with a default, or an assignment in round brackets.
        const char *bracket = before > start && before[-1] == '(' ? before - 1 : NULL;
        reader_t whole = {bracket, end, NULL, 0};
        is_assigned = bracket != NULL && skip_brackets(&whole);
        if (is_assigned) {
            skip_blanks(&whole);
            is_assigned = !is_next(&whole, "=>") && !is_next(&whole, "{");
        }
    }
    if (is_assigned) {
        r.at++;
        skip_blanks(&r);
        size_t size = out->size;
        if (!read_postfix(&r, NULL)) {
            out->size = size;
            dbuf_putstr(out, INTERMEDIATE);
        }
    }
    return true;
}

static JSValue cellar_throw_not_destructured(JSContext *c, JSValueConst value, const uint8_t *pc) {
    const char *word = JS_IsNull(value) ? "null" : "undefined";
    const char *start, *place, *end;
    char name[ATOM_GET_STR_BUF_SIZE];
    pattern_t pattern = {0};
    DynBuf text;
    js_dbuf_init(c, &text);
    bool is_read = find_place(c, &start, &place, &end) && read_pattern(start, place, end, &pattern, &text) && !dbuf_error(&text);
    if (!is_read && *pc == OP_get_field2) {
        pattern.name = JS_AtomGetStr(c, name, sizeof name, get_u32(pc + 1));
        pattern.length = strlen(pattern.name);
    }
    if (!is_read || text.size == 0 || text.size > CALLEE_BYTES) {
        text.size = 0;
        dbuf_printf(&text, "%s%s", is_read && JS_IsNull(value) ? "object " : "", word);
    }
    int length = pattern.length > CALLEE_BYTES ? CALLEE_BYTES : (int)pattern.length;
    if (dbuf_error(&text))
        JS_ThrowTypeError(c, "Cannot destructure '%s' as it is %s.", word, word);
    else if (length > 0 && (pattern.is_nested || pattern.has_default))
        JS_ThrowTypeError(c, "Cannot read properties of %s (reading '%.*s')", word, length, pattern.name);
    else if (length > 0)
        JS_ThrowTypeError(c, "Cannot destructure property '%.*s' of '%.*s' as it is %s.", length, pattern.name, (int)text.size,
                          (const char *)text.buf, word);
    else
        JS_ThrowTypeError(c, "Cannot destructure '%.*s' as it is %s.", (int)text.size, (const char *)text.buf, word);
    dbuf_free(&text);
    return JS_EXCEPTION;
}

static void cellar_throw_class_called(JSContext *c, JSValueConst function) {
    const char *name = get_func_name(c, function);
    JS_ThrowTypeError(c, "Class constructor %s cannot be invoked without 'new'", name == NULL ? "" : name);
    JS_FreeCString(c, name);
}

// Longest way around a circle that is told, in objects.
#define CIRCLE_MAX 10

// Puts how an object has another: by its index or by the name of a property, found without running code.
static void put_way(JSContext *c, JSValueConst from, JSValueConst to, DynBuf *out) {
    JSObject *p = JS_VALUE_GET_OBJ(from), *wanted = JS_VALUE_GET_OBJ(to);
    if (p->class_id == JS_CLASS_ARRAY && p->fast_array) {
        for (uint32_t i = 0; i < p->u.array.count; i++) {
            if (JS_IsObject(p->u.array.u.values[i]) && JS_VALUE_GET_OBJ(p->u.array.u.values[i]) == wanted) {
                dbuf_printf(out, "index %u", i);
                return;
            }
        }
    }
    JSShapeProperty *shape = get_shape_prop(p->shape);
    for (int i = 0; p->class_id != JS_CLASS_PROXY && i < p->shape->prop_count; i++, shape++) {
        if (shape->atom == JS_ATOM_NULL || (shape->flags & JS_PROP_TMASK) != JS_PROP_NORMAL)
            continue;
        JSValueConst value = p->prop[i].u.value;
        if (JS_IsObject(value) && JS_VALUE_GET_OBJ(value) == wanted) {
            char name[ATOM_GET_STR_BUF_SIZE];
            dbuf_printf(out, "property '%s'", JS_AtomGetStr(c, name, sizeof name, shape->atom));
            return;
        }
    }
    dbuf_putstr(out, "a property");
}

static void put_class_name(JSContext *c, JSValueConst object, DynBuf *out) {
    if (!put_string(c, name_of_class(object), out))
        dbuf_putstr(out, "Object");
}

static void put_class(JSContext *c, JSValueConst object, DynBuf *out) {
    dbuf_putstr(out, "object with constructor '");
    put_class_name(c, object, out);
    dbuf_putc(out, '\'');
}

static void cellar_throw_circular(JSContext *c, JSValueConst stack, JSValueConst value) {
    JSObject *list = JS_VALUE_GET_OBJ(stack);
    JSValue *objects = list->u.array.u.values;
    uint32_t count = list->fast_array ? list->u.array.count : 0, first = 0;
    while (first < count && JS_VALUE_GET_PTR(objects[first]) != JS_VALUE_GET_PTR(value))
        first++;
    DynBuf text;
    js_dbuf_init(c, &text);
    dbuf_putstr(&text, "Converting circular structure to JSON");
    if (first < count) {
        dbuf_putstr(&text, "\n    --> starting at ");
        put_class(c, value, &text);
        for (uint32_t i = first; i + 1 < count; i++) {
            if (i - first >= CIRCLE_MAX) {
                dbuf_putstr(&text, "\n    |     ...");
                break;
            }
            dbuf_putstr(&text, "\n    |     ");
            put_way(c, objects[i], objects[i + 1], &text);
            dbuf_putstr(&text, " -> ");
            put_class(c, objects[i + 1], &text);
        }
        dbuf_putstr(&text, "\n    --- ");
        put_way(c, objects[count - 1], value, &text);
        dbuf_putstr(&text, " closes the circle");
    }
    dbuf_putc(&text, '\0');
    JS_ThrowTypeError(c, "%s", dbuf_error(&text) ? "Converting circular structure to JSON" : (char *)text.buf);
    dbuf_free(&text);
}

// ---- What objects and functions refuse

// Characters of a value or a name that stand in a message.
#define SHOWN_MAX 100

// Puts a value as V8 writes it in messages, without running code.
static void put_value(JSContext *c, JSValueConst value, DynBuf *out) {
    if (JS_IsFunction(c, value)) {
        dbuf_putstr(out, "function");
    } else if (JS_GetClassID(value) == JS_CLASS_ARRAY) {
        dbuf_putstr(out, "[object Array]");
    } else if (JS_GetClassID(value) == JS_CLASS_MODULE_NS) {
        dbuf_putstr(out, "[object Module]");
    } else if (JS_IsObject(value)) {
        dbuf_putstr(out, "#<");
        put_class_name(c, value, out);
        dbuf_putc(out, '>');
    } else if (JS_IsSymbol(value)) {
        JSAtom atom = JS_ValueToAtom(c, value);
        char name[ATOM_GET_STR_BUF_SIZE];
        dbuf_printf(out, "Symbol(%s)", JS_AtomGetStr(c, name, sizeof name, atom));
        JS_FreeAtom(c, atom);
    } else {
        const char *text = JS_ToCString(c, value), *quote = JS_IsString(value) ? "\"" : "";
        if (text != NULL)
            dbuf_printf(out, "%s%.*s%s", quote, SHOWN_MAX, text, quote);
        JS_FreeCString(c, text);
    }
    dbuf_putc(out, '\0');
}

// The text of what was put, or none when memory was short.
static const char *shown(DynBuf *text) {
    return dbuf_error(text) ? "" : (const char *)text->buf;
}

static JSValue cellar_throw_value(JSContext *c, const char *before, JSValueConst value, const char *after) {
    DynBuf text;
    js_dbuf_init(c, &text);
    put_value(c, value, &text);
    JS_ThrowTypeError(c, "%s%.*s%s", before, SHOWN_MAX, shown(&text), after);
    dbuf_free(&text);
    return JS_EXCEPTION;
}

static int cellar_refuse(JSContext *c, int flags, cellar_refusal_t refusal, JSValueConst object, JSAtom atom) {
    if (!(flags & JS_PROP_THROW) && !((flags & JS_PROP_THROW_STRICT) && is_strict_mode(c)))
        return false;
    char buffer[ATOM_GET_STR_BUF_SIZE];
    const char *name = JS_AtomGetStr(c, buffer, sizeof buffer, atom);
    DynBuf text;
    js_dbuf_init(c, &text);
    put_value(c, object, &text);
    const char *whose = shown(&text);
    switch (refusal) {
    case CELLAR_READ_ONLY:
        if (JS_IsString(object)) {
            text.size = 0;
            put_string(c, object, &text);
            dbuf_putc(&text, '\0');
            JS_ThrowTypeError(c, "Cannot assign to read only property '%.*s' of string '%.*s'", SHOWN_MAX, name, SHOWN_MAX, shown(&text));
            break;
        }
        JS_ThrowTypeError(c, "Cannot assign to read only property '%.*s' of object '%.*s'", SHOWN_MAX, name, SHOWN_MAX, whose);
        break;
    case CELLAR_NO_SETTER:
        JS_ThrowTypeError(c, "Cannot set property %.*s of %.*s which has only a getter", SHOWN_MAX, name, SHOWN_MAX, whose);
        break;
    case CELLAR_NOT_ADDED:
        JS_ThrowTypeError(c, "Cannot add property %.*s, object is not extensible", SHOWN_MAX, name);
        break;
    case CELLAR_NOT_DEFINED:
        JS_ThrowTypeError(c, "Cannot define property %.*s, object is not extensible", SHOWN_MAX, name);
        break;
    case CELLAR_NOT_REDEFINED:
        JS_ThrowTypeError(c, "Cannot redefine property: %.*s", SHOWN_MAX, name);
        break;
    case CELLAR_NOT_DELETED:
        JS_ThrowTypeError(c, "Cannot delete property '%.*s' of %.*s", SHOWN_MAX, name, SHOWN_MAX, whose);
        break;
    }
    dbuf_free(&text);
    return -1;
}

static JSValue cellar_throw_not_constructor(JSContext *c, JSValueConst value) {
    const char *start, *call, *end;
    if (find_place(c, &start, &call, &end)) {
        DynBuf text;
        js_dbuf_init(c, &text);
        reader_t r = {call, end, &text, 0};
        if (is_word_next(&r, "new")) {
            r.at += 3;
            skip_blanks(&r);
            // What is called in the end is not what makes the object.
            reader_t name = r;
            if (name.at < name.end && *name.at == '(')
                skip_brackets(&name);
            while (name.at < name.end && (in_name(*name.at) || *name.at == '.' || *name.at == '['))
                if (*name.at != '[')
                    name.at++;
                else if (!skip_brackets(&name))
                    break;
            if (!throw_about(c, &text, read_postfix(&r, name.at), " is not a constructor"))
                JS_ThrowTypeError(c, INTERMEDIATE " is not a constructor");
            return JS_EXCEPTION;
        }
        dbuf_free(&text);
    }
    return cellar_throw_value(c, "", value, " is not a constructor");
}

static void cellar_throw_other_brand(JSContext *c, JSValueConst method) {
    JSObject *home = js_class_has_bytecode(JS_GetClassID(method)) ? JS_VALUE_GET_OBJ(method)->u.func.home_object : NULL;
    JSValueConst object = home == NULL ? JS_UNDEFINED : JS_MKPTR(JS_TAG_OBJECT, home);
    bool is_static = home != NULL && is_class(home);
    DynBuf text;
    js_dbuf_init(c, &text);
    if (home == NULL || !put_string(c, is_static ? plain_string(object, JS_ATOM_name) : name_of_class(object), &text))
        dbuf_putstr(&text, "anonymous");
    dbuf_putc(&text, '\0');
    JS_ThrowTypeError(c, "Receiver must be %s %.*s", is_static ? "class" : "an instance of class", SHOWN_MAX, shown(&text));
    dbuf_free(&text);
}

static JSValue cellar_throw_multiple(JSContext *c, const char *what, int class_id, int size) {
    char name[ATOM_GET_STR_BUF_SIZE];
    JS_AtomGetStr(c, name, sizeof name, c->rt->class_array[class_id].class_name);
    return JS_ThrowRangeError(c, "%s of %s should be a multiple of %d", what, name, size);
}

static JSValue cellar_throw_called_without_new(JSContext *c, JSValueConst function) {
    const char *name = get_func_name(c, function);
    const char *shown_name = name == NULL ? "" : name;
    if (strcmp(shown_name, "Promise") == 0)
        JS_ThrowTypeError(c, "Promise constructor cannot be invoked without 'new'");
    else
        JS_ThrowTypeError(c, "Constructor %.*s requires 'new'", SHOWN_MAX, shown_name);
    JS_FreeCString(c, name);
    return JS_EXCEPTION;
}

static void cellar_throw_not_in(JSContext *c, JSValueConst name, JSValueConst value) {
    DynBuf texts[2];
    JSValueConst values[2] = {name, value};
    for (int i = 0; i < 2; i++) {
        js_dbuf_init(c, &texts[i]);
        if (JS_IsString(values[i])) {
            put_string(c, values[i], &texts[i]);
            dbuf_putc(&texts[i], '\0');
        } else {
            put_value(c, values[i], &texts[i]);
        }
    }
    JS_ThrowTypeError(c, "Cannot use 'in' operator to search for '%.*s' in %.*s", SHOWN_MAX, shown(&texts[0]), SHOWN_MAX, shown(&texts[1]));
    for (int i = 0; i < 2; i++)
        dbuf_free(&texts[i]);
}
