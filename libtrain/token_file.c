/* SPDX-License-Identifier: Apache-2.0
 * token_file.c - read a secret that nobody else can read, and compare it */
#include "token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"

/* Of the open file, so that what is checked is what is read. */
static train_status_t check_file (const char *path, int fd, train_error_t *err)
{
    struct stat st;

    if (fstat (fd, &st) < 0)
        return err_set (err, TRAIN_EIO, "%s: %s", path, strerror (errno));
    if (!S_ISREG (st.st_mode))
        return err_set (err, TRAIN_EFORMAT, "%s: a token file is a plain file",
                        path);
    if (st.st_uid != geteuid ())
        return err_set (err, TRAIN_EFORMAT,
                        "%s: belongs to user %u, a token file must belong to "
                        "user %u, who runs this",
                        path, (unsigned)st.st_uid, (unsigned)geteuid ());
    if (st.st_mode & 077)
        return err_set (err, TRAIN_EFORMAT,
                        "%s: mode %04o lets others at it; chmod 0600 %s", path,
                        (unsigned)st.st_mode & 07777, path);
    return TRAIN_OK;
}

static train_status_t take_line (const char *path, char *text,
                                 train_error_t *err)
{
    size_t n = strcspn (text, "\r\n");

    text[n] = '\0';
    if (n < TOKEN_LEAST || n > TOKEN_MOST)
        return err_set (err, TRAIN_EFORMAT,
                        "%s: its first line has %zu characters, a token %d to "
                        "%d",
                        path, n, TOKEN_LEAST, TOKEN_MOST);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return err_set (err, TRAIN_EFORMAT,
                            "%s: character %zu of its first line is no "
                            "printable ASCII, or a space",
                            path, i + 1);
    return TRAIN_OK;
}

train_status_t token_file_read (const char *path, char ret[TOKEN_MOST + 1],
                                train_error_t *err)
{
    /* One more than a token and its end of line, to know of more. */
    char text[TOKEN_MOST + 3] = "";
    int fd = open (path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    train_status_t status;
    ssize_t n;

    if (fd < 0)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s: %s", path, strerror (errno));
    status = check_file (path, fd, err);
    if (status == TRAIN_OK && (n = read (fd, text, sizeof (text) - 1)) < 0)
        status = err_set (err, TRAIN_EIO, "%s: %s", path, strerror (errno));
    if (status == TRAIN_OK)
        status = take_line (path, text, err);
    if (status == TRAIN_OK)
        memcpy (ret, text, strlen (text) + 1);
    explicit_bzero (text, sizeof (text));
    close (fd);
    return status;
}

bool token_same (const char *token, const char *given)
{
    size_t n = strlen (token), m = strlen (given);
    volatile unsigned char differ = n != m;

    for (size_t i = 0; i < m; i++)
        differ |= (unsigned char)(token[n ? i % n : 0] ^ given[i]);
    return !differ;
}
