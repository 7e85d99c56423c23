// Expressions of a program's source as V8 writes them in messages: `rows[0].map(...).filter`. Part of engine.c. The source is
// read as it stands, by its characters; what is not understood is an "(intermediate value)", as what has no short form is for V8.

// Expressions in one another that are followed.
#define EXPRESSION_DEPTH 8

// Bytes that an expression is looked for in, back from the place of an error, and that it may have.
#define EXPRESSION_BYTES 1000

#define INTERMEDIATE "(intermediate value)"

// A part of a program that is being read, and where what was understood goes.
typedef struct {
    const char *at, *end;
    DynBuf *out;
    int depth;
} reader_t;

static bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '#' || (c & 0x80) != 0;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(reader_t *r) {
    while (r->at < r->end) {
        if (is_blank(*r->at)) {
            r->at++;
        } else if (r->end - r->at > 1 && r->at[0] == '/' && (r->at[1] == '/' || r->at[1] == '*')) {
            bool is_line = r->at[1] == '/';
            r->at += 2;
            while (r->at < r->end && (is_line ? *r->at != '\n' : r->at[-1] != '*' || *r->at != '/'))
                r->at++;
            if (r->at < r->end)
                r->at++;
        } else {
            return;
        }
    }
}

static bool is_next(const reader_t *r, const char *text) {
    size_t length = strlen(text);
    return (size_t)(r->end - r->at) >= length && memcmp(r->at, text, length) == 0;
}

static bool is_word_next(const reader_t *r, const char *word) {
    size_t length = strlen(word);
    return is_next(r, word) && ((size_t)(r->end - r->at) == length || !in_name(r->at[length]));
}

// Goes behind a text in quotes; false when it does not end.
static bool skip_quoted(reader_t *r) {
    char quote = *r->at++;
    while (r->at < r->end && *r->at != quote)
        r->at += *r->at == '\\' && r->end - r->at > 1 ? 2 : 1;
    return r->at < r->end && *r->at++ == quote;
}

// Goes behind the bracket that closes the one which is next; false when none does.
static bool skip_brackets(reader_t *r) {
    int open = 0;
    while (r->at < r->end) {
        char c = *r->at;
        if (c == '"' || c == '\'' || c == '`') {
            if (!skip_quoted(r))
                return false;
            continue;
        }
        r->at++;
        if (c == '(' || c == '[' || c == '{')
            open++;
        else if ((c == ')' || c == ']' || c == '}') && --open == 0)
            return true;
    }
    return false;
}

static void put_text(reader_t *r, const char *text, const char *end) {
    dbuf_put(r->out, (const uint8_t *)text, (size_t)(end - text));
}

static bool read_expression(reader_t *r);

// Reads what stands in brackets, and puts it when it is understood to their end.
static bool read_group(reader_t *r) {
    const char *open = r->at;
    if (!skip_brackets(r))
        return false;
    reader_t inner = {open + 1, r->at - 1, r->out, r->depth + 1};
    size_t before = r->out->size;
    skip_blanks(&inner);
    bool is_understood = inner.depth < EXPRESSION_DEPTH && read_expression(&inner);
    skip_blanks(&inner);
    // What TypeScript takes it for is not there any more.
    if (is_word_next(&inner, "as") || is_word_next(&inner, "satisfies"))
        inner.at = inner.end;
    if (!is_understood || inner.at != inner.end) {
        r->out->size = before;
        dbuf_putstr(r->out, INTERMEDIATE);
    }
    return true;
}

// Reads the key in brackets behind an object: a text becomes a name.
static bool read_key(reader_t *r) {
    const char *open = r->at;
    if (!skip_brackets(r))
        return false;
    const char *first = open + 1, *last = r->at - 1;
    while (first < last && is_blank(*first))
        first++;
    while (first < last && is_blank(last[-1]))
        last--;
    reader_t text = {first, last, r->out, r->depth};
    if (last - first > 1 && strchr("'\"`", *first) != NULL && skip_quoted(&text) && text.at == last &&
        memchr(first, '$', (size_t)(last - first)) == NULL) {
        dbuf_putc(r->out, '.');
        put_text(r, first + 1, last - 1);
        return true;
    }
    dbuf_putc(r->out, '[');
    reader_t group = {open, r->at, r->out, r->depth};
    read_group(&group);
    dbuf_putc(r->out, ']');
    return true;
}

// Reads a list in brackets, or the properties of an object, of which V8 shows only how many there are.
static bool read_literal(reader_t *r) {
    const char *open = r->at;
    if (!skip_brackets(r))
        return false;
    reader_t inner = {open + 1, r->at - 1, r->out, r->depth + 1};
    bool is_list = *open == '[';
    dbuf_putc(r->out, *open);
    for (skip_blanks(&inner); inner.at < inner.end; skip_blanks(&inner)) {
        size_t before = r->out->size;
        bool is_understood = is_list && inner.depth < EXPRESSION_DEPTH && read_expression(&inner);
        skip_blanks(&inner);
        if (!is_understood || (inner.at < inner.end && *inner.at != ',')) {
            r->out->size = before;
            dbuf_putstr(r->out, INTERMEDIATE);
        }
        while (inner.at < inner.end && *inner.at != ',') {
            if (strchr("([{", *inner.at) != NULL ? !skip_brackets(&inner)
                : strchr("'\"`", *inner.at) != NULL ? !skip_quoted(&inner) : !inner.at++)
                return false;
        }
        if (inner.at < inner.end && *inner.at++ == ',' && is_list)
            dbuf_putc(r->out, ',');
    }
    dbuf_putc(r->out, is_list ? ']' : '}');
    return true;
}

// Reads what an expression begins with. False where it is none that has a form.
static bool read_primary(reader_t *r) {
    static const char *const other[] = {"function", "class", "async", "await", "yield", "super", "import", "typeof", "void", "delete"};
    if (r->at == r->end)
        return false;
    char c = *r->at;
    if (c == '(')
        return read_group(r);
    if (c == '[' || c == '{')
        return read_literal(r);
    const char *first = r->at;
    if (c == '"' || c == '\'') {
        if (!skip_quoted(r))
            return false;
        dbuf_putc(r->out, '"');
        put_text(r, first + 1, r->at - 1);
        dbuf_putc(r->out, '"');
        return true;
    }
    if (c == '`') {
        if (!skip_quoted(r))
            return false;
        dbuf_putstr(r->out, INTERMEDIATE);
        return true;
    }
    if (is_word_next(r, "new")) {
        r->at += 3;
        skip_blanks(r);
        while (r->at < r->end && (in_name(*r->at) || *r->at == '.'))
            r->at++;
        skip_blanks(r);
        dbuf_putstr(r->out, INTERMEDIATE);
        return r->at == r->end || *r->at != '(' || skip_brackets(r);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        if (is_word_next(r, other[i])) {
            dbuf_putstr(r->out, INTERMEDIATE);
            r->at += strlen(other[i]);
            return strcmp(other[i], "super") == 0;
        }
    }
    bool is_number = c >= '0' && c <= '9';
    while (r->at < r->end && (in_name(*r->at) || (is_number && *r->at == '.')))
        r->at++;
    put_text(r, first, r->at);
    return r->at > first;
}

// Reads an expression with all that is taken from it, or up to `stop`, where that is among it.
static bool read_postfix(reader_t *r, const char *stop) {
    if (!read_primary(r))
        return false;
    for (;;) {
        const char *before = r->at;
        skip_blanks(r);
        if (r->at == r->end || before == stop || r->at == stop) {
            r->at = before;
            return true;
        }
        bool is_optional = is_next(r, "?.") && !(r->end - r->at > 2 && r->at[2] >= '0' && r->at[2] <= '9');
        if (is_optional)
            r->at += 2;
        else if (*r->at == '.' && !is_next(r, "..."))
            r->at++;
        bool has_dot = r->at > before && r->at[-1] == '.';
        if (has_dot)
            skip_blanks(r);
        if (r->at == r->end || (has_dot && r->at == stop && strchr("([`", *r->at) != NULL)) {
            r->at = before;
            return true;
        }
        if (*r->at == '(' && (is_optional || !has_dot)) {
            if (!skip_brackets(r))
                return false;
            dbuf_putstr(r->out, "(...)");
        } else if (*r->at == '[' && (is_optional || !has_dot)) {
            if (is_optional)
                dbuf_putstr(r->out, "?");
            if (!read_key(r))
                return false;
        } else if (has_dot && in_name(*r->at)) {
            const char *first = r->at;
            while (r->at < r->end && in_name(*r->at))
                r->at++;
            dbuf_putstr(r->out, is_optional ? "?." : ".");
            put_text(r, first, r->at);
        } else {
            r->at = before;
            return !has_dot;
        }
    }
}

// Reads an expression without operators, or one with a single operator, which V8 puts in round brackets.
static bool read_expression(reader_t *r) {
    static const char *const operators[] = {
        "===", "!==", "**", "??", "||", "&&", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "<", ">", "|", "&", "^",
    };
    size_t before = r->out->size;
    bool is_negative = *r->at == '-' && r->end - r->at > 1 && r->at[1] >= '0' && r->at[1] <= '9';
    if (is_negative) {
        dbuf_putc(r->out, '-');
        r->at++;
    }
    if (!read_postfix(r, NULL))
        return false;
    const char *after = r->at;
    skip_blanks(r);
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!is_next(r, operators[i]))
            continue;
        r->at += strlen(operators[i]);
        if (r->at < r->end && strchr("=>", *r->at) != NULL)
            return false;
        skip_blanks(r);
        dbuf_printf(r->out, " %s ", operators[i]);
        if (r->at == r->end || !read_postfix(r, NULL))
            return false;
        dbuf_putc(r->out, ')');
        dbuf_putc(r->out, '(');
        size_t length = r->out->size - 1 - before;
        if (dbuf_error(r->out))
            return false;
        memmove(r->out->buf + before + 1, r->out->buf + before, length);
        r->out->buf[before] = '(';
        return true;
    }
    r->at = after;
    return true;
}

// Goes back from behind a bracket to the one that opened it; NULL when there is none.
static const char *opening(const char *start, const char *at) {
    int open = 0;
    while (at > start) {
        char c = *--at;
        if (c == '"' || c == '\'' || c == '`') {
            do {
                if (at == start)
                    return NULL;
                at--;
            } while (*at != c || (at > start && at[-1] == '\\'));
        } else if (c == ')' || c == ']' || c == '}') {
            open++;
        } else if ((c == '(' || c == '[' || c == '{') && --open == 0) {
            return at;
        }
    }
    return NULL;
}

static const char *before_blanks(const char *start, const char *at) {
    while (at > start && is_blank(at[-1]))
        at--;
    return at;
}

static bool ends_with_word(const char *start, const char *at, const char *word) {
    size_t length = strlen(word);
    return (size_t)(at - start) >= length && memcmp(at - length, word, length) == 0 &&
           ((size_t)(at - start) == length || !in_name(at[-(ptrdiff_t)length - 1]));
}

// A word that stands before brackets and is no name of a function.
static bool ends_with_keyword(const char *start, const char *at) {
    static const char *const words[] = {
        "if", "while", "for", "switch", "with", "catch", "return", "await", "of", "in", "typeof", "void", "case", "throw", "yield",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ends_with_word(start, at, words[i]))
            return true;
    return false;
}

// Whether the bracket that closes before `at` closes the condition of a statement, behind which another begins.
static bool follows_condition(const char *start, const char *at) {
    const char *open = at[-1] == ')' ? opening(start, at) : NULL;
    return open != NULL && ends_with_keyword(start, before_blanks(start, open));
}

// Where the expression begins that `at`, the start of a name or of an expression, is a part of: back over `a.b(c)[d].`.
static const char *expression_start(const char *start, const char *at) {
    if (at - start > EXPRESSION_BYTES)
        start = at - EXPRESSION_BYTES;
    for (;;) {
        const char *before = before_blanks(start, at);
        if (before == start || before[-1] != '.' || (before - start > 1 && before[-2] == '.'))
            return at;
        before--;
        if (before > start && before[-1] == '?')
            before--;
        before = before_blanks(start, before);
        // Over the brackets of calls and keys to what they belong to.
        bool has_more = true;
        while (has_more) {
            has_more = false;
            if (before == start)
                return at;
            char c = before[-1];
            if (c == ')' || c == ']' || c == '}') {
                const char *open = opening(start, before);
                if (open == NULL)
                    return at;
                before = open;
                const char *name = before_blanks(start, before);
                if (name - start > 1 && name[-1] == '.' && name[-2] == '?')
                    name = before_blanks(start, name - 2);
                if (c != '}' && name > start && strchr(")]", name[-1]) != NULL && !follows_condition(start, name)) {
                    before = name;
                    has_more = true;
                } else if (c != '}' && name > start && in_name(name[-1]) && !ends_with_keyword(start, name)) {
                    before = name;
                    while (before > start && in_name(before[-1]))
                        before--;
                }
            } else if (c == '"' || c == '\'' || c == '`') {
                do
                    before--;
                while (before > start && before[-1] != c);
                if (before == start)
                    return at;
                before--;
            } else if (in_name(c)) {
                while (before > start && in_name(before[-1]))
                    before--;
            } else {
                return at;
            }
        }
        at = before;
        const char *word = before_blanks(start, at);
        if (ends_with_word(start, word, "new"))
            return word - 3;
    }
}
