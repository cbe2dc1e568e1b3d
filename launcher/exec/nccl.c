/* SPDX-License-Identifier: Apache-2.0
 * nccl.c - the NCCL library that the loader would pick
 *
 * Nothing is loaded: ld.so(8)'s order is followed by hand, for a program
 * without DT_RUNPATH. The cache is glibc's "glibc-ld.so.cache1.1" (a head, an
 * array of entries, strings at offsets from the head), maybe behind a table of
 * the older form. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/facts.h"

#define SONAME       "libnccl.so.2"
#define CACHE_MAGIC  "glibc-ld.so.cache1.1"
#define SAYS         "NCCL version "
#define SECTIONS_MAX 256
#define RODATA_MAX   (64u << 20)

struct cache_head {
    char magic[20];
    uint32_t n, strings;
    uint32_t unused[5];
};

struct cache_entry {
    int32_t flags;
    uint32_t key, value, os;
    uint64_t hwcap;
};

struct bytes {
    const unsigned char *p;
    size_t n;
};

static bool map (const char *path, struct bytes *ret)
{
    int fd = open (path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *p = MAP_FAILED;

    if (fd >= 0 && !fstat (fd, &st) && S_ISREG (st.st_mode) && st.st_size > 0)
        p = mmap (NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        close (fd);
    if (p == MAP_FAILED)
        return false;
    *ret = (struct bytes){p, (size_t)st.st_size};
    return true;
}

static void unmap (struct bytes b)
{
    munmap ((void *)(uintptr_t)b.p, b.n);
}

/* Is it a library that this machine could load? */
static bool fits (const char *path)
{
    Elf64_Ehdr self, other;
    bool ok = false;
    int fd[2] = {open ("/proc/self/exe", O_RDONLY | O_CLOEXEC),
                 open (path, O_RDONLY | O_CLOEXEC)};

    if (fd[0] >= 0 && fd[1] >= 0)
        ok = read (fd[0], &self, sizeof (self)) == sizeof (self)
             && read (fd[1], &other, sizeof (other)) == sizeof (other)
             && !memcmp (other.e_ident, ELFMAG, SELFMAG)
             && other.e_ident[EI_CLASS] == self.e_ident[EI_CLASS]
             && other.e_machine == self.e_machine;
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close (fd[i]);
    return ok;
}

/* A string of the cache, or NULL when it does not end inside. */
static const char *text_at (struct bytes b, uint32_t at)
{
    return at < b.n && memchr (b.p + at, '\0', b.n - at)
               ? (const char *)b.p + at
               : NULL;
}

static bool from_cache (const char *cache, char *path, size_t size)
{
    struct bytes whole, b = {NULL, 0};
    const unsigned char *head_at;
    struct cache_head head;
    bool found = false;

    if (!map (cache, &whole))
        return false;
    head_at = memmem (whole.p, whole.n, CACHE_MAGIC, strlen (CACHE_MAGIC));
    if (head_at)
        b = (struct bytes){head_at, whole.n - (size_t)(head_at - whole.p)};
    if (b.n >= sizeof (head)) {
        memcpy (&head, b.p, sizeof (head));
        if (head.n > (b.n - sizeof (head)) / sizeof (struct cache_entry))
            head.n = 0;
        for (uint32_t i = 0; !found && i < head.n; i++) {
            struct cache_entry e;
            const char *key, *value;

            memcpy (&e, b.p + sizeof (head) + i * sizeof (e), sizeof (e));
            key = text_at (b, e.key);
            value = text_at (b, e.value);
            found = key && value && !strcmp (key, SONAME) && fits (value)
                    && snprintf (path, size, "%s", value) < (int)size;
        }
    }
    unmap (whole);
    return found;
}

/* The first of a list of folders (or, with [files], of files) that has it. */
static bool from_list (const char *list, const char *separators, bool files,
                       char *path, size_t size)
{
    while (list && *list) {
        int len = (int)strcspn (list, separators);
        const char *name = list;

        list += len;
        list += *list != '\0';
        if (!len && files)
            continue;
        if (snprintf (path, size, "%.*s%s%s", len ? len : 1, len ? name : ".",
                      files ? "" : "/", files ? "" : SONAME)
            >= (int)size)
            continue;
        if (files && !strstr (path, "libnccl.so"))
            continue;
        if (fits (path))
            return true;
    }
    return false;
}

/* "libnccl.so.2.28.9" has the version in its name. */
static bool version_of_name (const char *path, char *buf, size_t size)
{
    const char *name = strrchr (path, '/'), *at;

    name = name ? name + 1 : path;
    at = strstr (name, ".so.");
    if (!at || strspn (at + 4, "0123456789.") != strlen (at + 4)
        || !strchr (at + 4, '.'))
        return false;
    snprintf (buf, size, "%s", at + 4);
    return true;
}

static bool version_in (struct bytes b, char *buf, size_t size)
{
    const unsigned char *p = b.p, *end = b.p + b.n;

    while ((p = memmem (p, (size_t)(end - p), SAYS, strlen (SAYS)))) {
        size_t n = 0;

        p += strlen (SAYS);
        while (p + n < end && n + 1 < size
               && memchr ("0123456789.", p[n], sizeof ("0123456789.") - 1))
            n++;
        if (n > 2) {
            snprintf (buf, size, "%.*s", (int)n, (const char *)p);
            return true;
        }
    }
    return false;
}

/* The library is hundreds of megabytes of GPU code: only .rodata is read. */
static bool version_of_text (const char *path, char *buf, size_t size)
{
    struct bytes b;
    Elf64_Ehdr head;
    bool found = false;

    if (!map (path, &b))
        return false;
    if (b.n >= sizeof (head)) {
        memcpy (&head, b.p, sizeof (head));
        if (head.e_shentsize != sizeof (Elf64_Shdr)
            || head.e_shnum > SECTIONS_MAX || head.e_shoff > b.n
            || (b.n - head.e_shoff) / sizeof (Elf64_Shdr) < head.e_shnum)
            head.e_shnum = 0;
        for (unsigned i = 0; !found && i < head.e_shnum; i++) {
            Elf64_Shdr s;

            memcpy (&s, b.p + head.e_shoff + i * sizeof (s), sizeof (s));
            if (s.sh_type == SHT_PROGBITS && (s.sh_flags & SHF_ALLOC)
                && !(s.sh_flags & (SHF_WRITE | SHF_EXECINSTR))
                && s.sh_size <= RODATA_MAX && s.sh_offset <= b.n
                && s.sh_size <= b.n - s.sh_offset)
                found = version_in (
                    (struct bytes){b.p + s.sh_offset, s.sh_size}, buf, size);
        }
    }
    unmap (b);
    return found;
}

bool nccl_find (nccl_get_f get, const char *cache, char *path, size_t size,
                char *version, size_t version_size)
{
    char found[4096], *real;

    if (!from_list (get ("LD_PRELOAD"), ": ", true, found, sizeof (found))
        && !from_list (get ("LD_LIBRARY_PATH"), ":;", false, found,
                       sizeof (found))
        && !from_cache (cache, found, sizeof (found))
        && !from_list ("/lib64:/usr/lib64:/lib:/usr/lib", ":", false, found,
                       sizeof (found)))
        return false;
    real = realpath (found, NULL);
    snprintf (path, size, "%s", real ? real : found);
    free (real);
    if (!version_of_name (path, version, version_size)
        && !version_of_text (path, version, version_size))
        snprintf (version, version_size, "?");
    return true;
}
