/* SPDX-License-Identifier: Apache-2.0
 * test_progress.c - what is left of lines that were drawn over and over */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "progress.h"

static void cleaned (void **state)
{
    static const struct {
        const char *line, *want;
    } v[] = {
        {"", ""},
        {"\n", "\n"},
        {"\r", "\r"},
        {"\r\r\n", "\r\r\n"},
        {"plain\n", "plain\n"},
        {"dos\r\n", "dos\r\n"},
        {"half\r", "half\r"},
        {"\r 0%|\r 50%|##\r100%|####\n", "100%|####\n"},
        {"\r 0%|\r 50%|##\r", " 50%|##\r"},
        {"0%\r50%\r\n", "50%\r\n"},
        {"bar\r\rtext", "text"},
        /* Colours stay, moves go: up, erase to the end, show the cursor. */
        {"\r\033[31m 5%\033[0m\033[K\033[A", "\033[31m 5%\033[0m"},
        {"\033[?25hdone\n", "done\n"},
        {"\033[1;32mok\033[m\n", "\033[1;32mok\033[m\n"},
        /* What is not whole yet, or no such sequence, stays. */
        {"a\033[", "a\033["},
        {"a\033[3", "a\033[3"},
        {"a\033Mb", "a\033Mb"},
        {"\033", "\033"},
    };

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        char *line = strdup (v[i].line);
        size_t len = progress_clean (line, strlen (line));

        line[len] = '\0';
        assert_string_equal (line, v[i].want);
        free (line);
    }
    (void)state;
}

/* What would leave a terminal in another state: character sets, titles, bells,
 * zeros. */
static void made_harmless (void **state)
{
    static const struct {
        const char *line;
        size_t len;
        const char *want;
    } v[] = {
        {"", 0, ""},
        {"a\tb\r\n", 5, "a\tb\r\n"},
        {"\0a\0\n", 4, "a\n"},
        {"\016\017a\a\b\x7f\n", 7, "a\n"},
        {"\033[31ma\033[m\n", 10, "\033[31ma\033[m\n"},
        {"\033]0;title\aa\n", 12, "a\n"},
        {"\033]0;title\033\\a\n", 13, "a\n"},
        {"\033]0;no end\n", 12, "0;no end\n"},
        {"\033]0;\033[1mb\n", 10, "\033[1mb\n"},
        {"a\033cb\033\n", 6, "ab\n"},
        {"\033", 1, ""},
        {"\xe2\x96\x88\x80\xff\n", 6, "\xe2\x96\x88\x80\xff\n"},
    };

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        char line[32] = "";
        size_t len;

        memcpy (line, v[i].line, v[i].len);
        len = progress_harmless (line, v[i].len);
        line[len] = '\0';
        assert_int_equal (len, strlen (v[i].want));
        assert_string_equal (line, v[i].want);
    }
    assert_true (progress_is_plain ("a\tb\n\xff", 5));
    assert_false (progress_is_plain ("a\0", 2));
    assert_false (progress_is_plain ("a\r", 2));
    (void)state;
}

static void fits (void **state)
{
    static const struct {
        const char *text;
        unsigned columns;
        size_t want;
    } v[] = {
        {"", 5, 0},
        {"abc", 0, 0},
        {"abc", 2, 2},
        {"abc", 3, 3},
        {"abc", 80, 3},
        {"a\xe2\x96\x88\xe2\x96\x88z", 2, 4}, /* a, and a block of 3 bytes */
        {"a\xe2\x96\x88\xe2\x96\x88z", 4, 8},
        {"\033[31mab\033[0mc", 2, 11}, /* a colour takes no room */
        {"ab\tc", 9, 2},
        {"ab\033[Ac", 9, 2},
        {"ab\033", 9, 2},
    };

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        assert_int_equal (
            progress_fit (v[i].text, strlen (v[i].text), v[i].columns),
            v[i].want);
    (void)state;
}

/* What arrives at the other end of the terminal. */
static void expect (int master, const char *want)
{
    char buf[256];
    ssize_t n = read (master, buf, sizeof (buf) - 1);

    buf[n > 0 ? n : 0] = '\0';
    assert_string_equal (buf, want);
}

static void lowest_line (void **state)
{
    struct winsize size = {.ws_row = 10, .ws_col = 8};
    int master = posix_openpt (O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct live live = {.fd = -1};
    char *name;

    assert_false (live_show (&live, "", "text", 4, 1000)); /* no terminal */
    live_erase (&live);
    live_erase (NULL);
    assert_true (master >= 0 && grantpt (master) == 0 && unlockpt (master) == 0
                 && (name = ptsname (master)));
    live.fd = open (name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true (live.fd >= 0 && ioctl (live.fd, TIOCSWINSZ, &size) == 0);
    fcntl (master, F_SETFL, O_NONBLOCK);

    live_erase (&live); /* nothing stands there */
    expect (master, "");
    assert_true (live_show (&live, "3: ", "12345678", 8, 1000));
    expect (master, "\r\033[K3: 1234\033[0m"); /* seven of eight columns */
    assert_false (live_show (&live, "3: ", "2", 1, 1050));
    expect (master, "");
    assert_true (live_show (&live, "3: ", "2", 1, 1100));
    expect (master, "\r\033[K3: 2\033[0m");
    live_erase (&live);
    live_erase (&live);
    expect (master, "\r\033[K");
    assert_true (live_show (&live, "a long label: ", "2", 1, 2000));
    expect (master, "\r\033[Ka long label: \033[0m");
    close (live.fd);
    close (master);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (cleaned),
        cmocka_unit_test (made_harmless),
        cmocka_unit_test (fits),
        cmocka_unit_test (lowest_line),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
