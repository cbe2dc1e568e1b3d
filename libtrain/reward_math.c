/* SPDX-License-Identifier: Apache-2.0
 * reward_math.c - exact arithmetic of what stands in a text */
#include "reward_math.h"

#include <ctype.h>
#include <string.h>

#define DEEP    64
#define MAX_RUN 1000

__extension__ typedef __int128 wide;

struct scan {
    const char *p, *end;
    int depth, ops;
    enum math status; /* the first that was not fine */
};

static wide gcd (wide a, wide b)
{
    while (b != 0) {
        wide c = a % b;

        a = b;
        b = c;
    }
    return a < 0 ? -a : a;
}

static struct rational fail (struct scan *s, enum math status)
{
    if (s->status == MATH_OK)
        s->status = status;
    return (struct rational){0, 1};
}

/* num/den in lowest terms; both are below 2^127. */
static struct rational lowest (struct scan *s, wide num, wide den)
{
    wide g;

    if (den == 0)
        return fail (s, MATH_ZERO);
    if (den < 0)
        num = -num, den = -den;
    g = gcd (num, den);
    num /= g;
    den /= g;
    if (num > INT64_MAX || num < -INT64_MAX || den > INT64_MAX)
        return fail (s, MATH_RANGE);
    return (struct rational){(int64_t)num, (int64_t)den};
}

static struct rational combine (struct scan *s, struct rational a, char op,
                                struct rational b)
{
    if (op == '*')
        return lowest (s, (wide)a.num * b.num, (wide)a.den * b.den);
    if (op == '/')
        return lowest (s, (wide)a.num * b.den, (wide)a.den * b.num);
    return lowest (
        s, (wide)a.num * b.den + (op == '+' ? 1 : -1) * (wide)b.num * a.den,
        (wide)a.den * b.den);
}

static void blanks (struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t'))
        s->p++;
}

/* The operator that [p] begins with, and its bytes; 0: none. */
static char operator_at (const char *p, const char *end, size_t *ret_n)
{
    static const struct {
        const char *text;
        char op;
    } list[] = {{"+", '+'},           {"-", '-'},        {"*", '*'},
                {"/", '/'},           {"\xc3\x97", '*'}, {"\xc3\xb7", '/'},
                {"\xe2\x88\x92", '-'}};

    for (size_t i = 0; i < sizeof (list) / sizeof (*list); i++) {
        size_t n = strlen (list[i].text);

        if ((size_t)(end - p) >= n && memcmp (p, list[i].text, n) == 0) {
            *ret_n = n;
            return list[i].op;
        }
    }
    return 0;
}

/* The next operator if it is one of two, which is then passed. */
static char take (struct scan *s, char one, char other)
{
    size_t n;
    char op;

    blanks (s);
    op = operator_at (s->p, s->end, &n);
    if (op == 0 || (op != one && op != other))
        return 0;
    s->p += n;
    return op;
}

static bool digit (const struct scan *s, size_t at)
{
    return (size_t)(s->end - s->p) > at && isdigit ((unsigned char)s->p[at]);
}

/* A comma with just three digits behind it. */
static bool thousands (const struct scan *s)
{
    return s->p < s->end && *s->p == ',' && digit (s, 1) && digit (s, 2)
           && digit (s, 3) && !digit (s, 4);
}

static struct rational number (struct scan *s)
{
    const char *begin = s->p;
    wide num = 0, den = 1;
    bool point = false;

    for (;; s->p++) {
        if (digit (s, 0)) {
            num = num * 10 + (*s->p - '0');
            den *= point ? 10 : 1;
        } else if (!point && s->p > begin && s->p < s->end && *s->p == '.'
                   && digit (s, 1))
            point = true;
        else if (point || s->p == begin || !thousands (s))
            break;
        if (num > (wide)1 << 100 || den > (wide)1 << 100)
            return fail (s, MATH_RANGE);
    }
    return s->p == begin ? fail (s, MATH_SYNTAX) : lowest (s, num, den);
}

static struct rational sum (struct scan *s);

static struct rational primary (struct scan *s)
{
    struct rational r;

    blanks (s);
    if (s->p == s->end || *s->p != '(')
        return number (s);
    s->p++;
    r = sum (s);
    blanks (s);
    if (s->status != MATH_OK)
        return r;
    if (s->p == s->end || *s->p != ')')
        return fail (s, MATH_SYNTAX);
    s->p++;
    return r;
}

static struct rational factor (struct scan *s)
{
    struct rational r;
    char sign;

    if (++s->depth > DEEP)
        return fail (s, MATH_RANGE);
    if ((sign = take (s, '+', '-')) == 0)
        r = primary (s);
    else {
        r = factor (s);
        if (sign == '-')
            r.num = -r.num;
    }
    s->depth--;
    return r;
}

static struct rational product (struct scan *s)
{
    struct rational r = factor (s);
    char op;

    while (s->status == MATH_OK && (op = take (s, '*', '/'))) {
        r = combine (s, r, op, factor (s));
        s->ops++;
    }
    return r;
}

static struct rational sum (struct scan *s)
{
    struct rational r = product (s);
    char op;

    while (s->status == MATH_OK && (op = take (s, '+', '-'))) {
        r = combine (s, r, op, product (s));
        s->ops++;
    }
    return r;
}

enum math math_eval (const char *text, size_t n, struct rational *ret,
                     int *ret_ops)
{
    struct scan s = {.p = text, .end = text + n};
    struct rational r = sum (&s);

    blanks (&s);
    if (s.status == MATH_OK && s.p != s.end)
        s.status = MATH_SYNTAX;
    if (s.status != MATH_OK)
        return s.status;
    *ret = r;
    if (ret_ops)
        *ret_ops = s.ops;
    return MATH_OK;
}

enum math math_number (const char *text, size_t n, struct rational *ret)
{
    struct scan s = {.p = text, .end = text + n};
    char sign = take (&s, '+', '-');
    struct rational r;

    blanks (&s);
    r = number (&s);
    if (s.status == MATH_OK && take (&s, '/', '/')) {
        blanks (&s);
        r = combine (&s, r, '/', number (&s));
    }
    blanks (&s);
    if (s.status == MATH_OK && s.p != s.end)
        s.status = MATH_SYNTAX;
    if (s.status != MATH_OK)
        return s.status;
    if (sign == '-')
        r.num = -r.num;
    *ret = r;
    return MATH_OK;
}

/* Bytes of an expression's character at [p], 0: it is none. */
static size_t char_of (const char *p, const char *end)
{
    size_t n;

    if (isdigit ((unsigned char)*p) || (*p && strchr (" \t().,", *p)))
        return 1;
    return operator_at (p, end, &n) ? n : 0;
}

/* Is there an expression with an operator in this run? */
static bool find_in (const char *text, size_t at, size_t n, size_t *ret_at,
                     size_t *ret_n)
{
    struct rational r;
    int ops;

    while (n > 0 && strchr (" \t.,", text[at + n - 1]))
        n--;
    for (size_t i = 0; i < n; i++) {
        enum math got;

        if (text[at + i] == ' ' || (i > 0 && text[at + i - 1] != ' '))
            continue;
        got = math_eval (text + at + i, n - i, &r, &ops);
        if (got == MATH_RANGE || got == MATH_ZERO || (!got && ops > 0)) {
            *ret_at = at + i;
            *ret_n = n - i;
            return true;
        }
    }
    return false;
}

bool math_find (const char *text, size_t n, size_t *ret_at, size_t *ret_n)
{
    bool found = false;
    size_t i = 0;

    while (i < n) {
        size_t begin = i, step;

        while (i < n && (step = char_of (text + i, text + n)) > 0)
            i += step;
        if (i > begin && i - begin <= MAX_RUN
            && find_in (text, begin, i - begin, ret_at, ret_n))
            found = true;
        if (i == begin)
            i++;
    }
    return found;
}
