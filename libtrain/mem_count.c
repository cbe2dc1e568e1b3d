/* SPDX-License-Identifier: Apache-2.0
 * mem_count.c - a list of what is held of the devices; it is short, for arrays
 * are few and large */
#include "mem_count.h"

#include <pthread.h>
#include <stdlib.h>

struct held {
    const void *memory;
    size_t bytes;
    int device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *list;
static size_t n, room;
static size_t now[MEM_COUNT_DEVICES], peak[MEM_COUNT_DEVICES];

static bool counted (int device)
{
    return device >= 0 && device < MEM_COUNT_DEVICES;
}

static bool grow (void)
{
    size_t more = room ? 2 * room : 64;
    struct held *p;

    if (n < room)
        return true;
    if (!(p = realloc (list, more * sizeof (*p))))
        return false;
    list = p;
    room = more;
    return true;
}

bool mem_count_add (int device, const void *memory, size_t bytes)
{
    bool ok;

    if (!memory || !counted (device))
        return true;
    pthread_mutex_lock (&lock);
    if ((ok = grow ())) {
        list[n++] = (struct held){memory, bytes, device};
        now[device] += bytes;
        if (now[device] > peak[device])
            peak[device] = now[device];
    }
    pthread_mutex_unlock (&lock);
    return ok;
}

void mem_count_drop (const void *memory)
{
    pthread_mutex_lock (&lock);
    for (size_t i = n; memory && i-- > 0;) {
        if (list[i].memory != memory)
            continue;
        now[list[i].device] -= list[i].bytes;
        list[i] = list[--n];
        break;
    }
    if (n == 0) { /* nothing is left for a leak checker to see */
        free (list);
        list = NULL;
        room = 0;
    }
    pthread_mutex_unlock (&lock);
}

static size_t read_of (const size_t *of, int device)
{
    size_t bytes;

    pthread_mutex_lock (&lock);
    bytes = counted (device) ? of[device] : 0;
    pthread_mutex_unlock (&lock);
    return bytes;
}

size_t mem_count_now (int device)
{
    return read_of (now, device);
}

size_t mem_count_peak (int device)
{
    return read_of (peak, device);
}
