/* SPDX-License-Identifier: Apache-2.0
 * train/safetensors.h - read and write .safetensors files.
 *
 * A file is mapped, never copied; its header is checked completely before any
 * tensor is handed out (huggingface/safetensors README, format section). The
 * file carries no device. Writing goes to a temporary file beside the target,
 * then fsync, rename and fsync of the folder, so that a reader, and a mapping
 * of the old file, never see half of it. */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <train/copy.h>
#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_safetensors train_safetensors_t;

/* Every element type of the format. Values never change. */
typedef enum train_st_type {
    TRAIN_ST_AUTO = 0, /* writing: the type that [dtype] is */
    TRAIN_ST_BOOL = 1,
    TRAIN_ST_F4 = 2, /* two to a byte */
    TRAIN_ST_F6_E2M3 = 3,
    TRAIN_ST_F6_E3M2 = 4,
    TRAIN_ST_U8 = 5,
    TRAIN_ST_I8 = 6,
    TRAIN_ST_F8_E5M2 = 7,
    TRAIN_ST_F8_E4M3 = 8,
    TRAIN_ST_F8_E8M0 = 9,
    TRAIN_ST_F8_E4M3FNUZ = 10,
    TRAIN_ST_F8_E5M2FNUZ = 11,
    TRAIN_ST_I16 = 12,
    TRAIN_ST_U16 = 13,
    TRAIN_ST_F16 = 14,
    TRAIN_ST_BF16 = 15,
    TRAIN_ST_I32 = 16,
    TRAIN_ST_U32 = 17,
    TRAIN_ST_F32 = 18,
    TRAIN_ST_C64 = 19, /* two floats */
    TRAIN_ST_F64 = 20,
    TRAIN_ST_I64 = 21,
    TRAIN_ST_U64 = 22,
} train_st_type_t;

/* The dtype of an entry whose type libtrain has no arithmetic for: its bytes
 * can be read and written all the same. */
#define TRAIN_ST_NO_DTYPE ((train_dtype_t)255)

/* One tensor of a file, or to be written to one. */
typedef struct train_st_entry {
    const char *name; /* UTF-8; not "__metadata__" */
    train_dtype_t dtype;
    int ndim;
    int64_t shape[TRAIN_MAX_DIMS];
    const void *data; /* reading: inside the mapping; not aligned beyond 8 */
    size_t bytes;     /* reading: written; writing: ignored */
    train_st_type_t type; /* reading: written; writing: unless AUTO, instead of
                             [dtype] */
} train_st_entry_t;

/* train_st_type_name - "F8_E4M3"; "unknown" else. Static.
 * train_st_type_bits - of one element; 0 if unknown. */
const char *train_st_type_name (train_st_type_t type);
unsigned train_st_type_bits (train_st_type_t type);

typedef struct train_st_meta {
    const char *key;
    const char *value;
} train_st_meta_t;

/* train_safetensors_open - map and check [path]; it stays open too. Bytes of a
 * tensor are read when they are touched first. A file that another program
 * shortens meanwhile raises SIGBUS there, as with any mapping (a load, below,
 * tells it as an error); one that is replaced does not.
 * TRAIN_ENOTFOUND, TRAIN_EIO; TRAIN_EFORMAT names what is wrong and where;
 * TRAIN_ENOTSUP: a tensor of more than TRAIN_MAX_DIMS dimensions (named). */
train_status_t train_safetensors_open (const char *path,
                                       train_safetensors_t **ret_file,
                                       train_error_t *err);
void train_safetensors_close (train_safetensors_t *file); /* NULL is fine */

/* train_safetensors_open_set - a model that may lie in several files, as one.
 *   path   an index (NAME.safetensors.index.json), one .safetensors file, or a
 *          folder with model.safetensors or model.safetensors.index.json (the
 *          first of them that is there, as huggingface/transformers has it)
 * The index decides: tensors of a file that it does not list are passed over,
 * one that it lists elsewhere than it is, is TRAIN_EFORMAT; its "metadata" is
 * not looked at. Files lie beside the index; a name with '/' is refused. */
train_status_t train_safetensors_open_set (const char *path,
                                           train_safetensors_t **ret_file,
                                           train_error_t *err);

/* Entries in the order of their data, file after file (files by name); they
 * live with [file]. */
size_t train_safetensors_count (const train_safetensors_t *file);
const train_st_entry_t *train_safetensors_entry (
    const train_safetensors_t *file, size_t index);
/* NULL when there is no tensor of that name. */
const train_st_entry_t *train_safetensors_find (const train_safetensors_t *file,
                                                const char *name);
/* Value of a __metadata__ key, or NULL; of a set, the first file's that has
 * it. */
const char *train_safetensors_meta (const train_safetensors_t *file,
                                    const char *key);

typedef struct train_st_load_options {
    size_t size;           /* sizeof (train_st_load_options_t) */
    train_verify_t verify; /* of what goes to a GPU; DEFAULT = FULL */
    int readers; /* threads that read; 0 = 14 to a GPU, 8 to the host, and no
                    more than there are CPUs or chunks; at most 64 */
} train_st_load_options_t;

/* train_safetensors_load - bytes of tensors into tensors of a GPU or the host,
 * and wait. Threads read into the copier's pinned ring while what they read
 * before is on its way to the GPU; to the host they read where the bytes
 * belong. The file is read from front to back, whatever the order of [names],
 * ahead of the threads where the page cache lacks it, and not by its map: one
 * that is shortened meanwhile is an error.
 *   dst          (n) written; all on one device, sharing no memory, of any
 *                strides but 0; each of its tensor's shape and type (BOOL and
 *                F8 are kDLUInt of 8 bits, as U8 is), or of one dimension of
 *                so many kDLUInt of 8 bits as it has bytes, whatever its type;
 *                F32, BF16 and F16 are converted into each other on the way,
 *                rounded to nearest even
 *   dst_stream   as that of train_copy; NULL to the host
 *   file         open until the load is done; also one of train_frames_recv
 *   names        (n) read during the call; NULL = all entries, in the order of
 *                train_safetensors_entry, and n is their count
 *   opts         NULL = all defaults
 *   ret_report   may be NULL; bytes and chunks are those of all tensors, an
 *                offset counts from the beginning of its tensor, which the log
 *                names
 * Each chunk is summed as it was read and where it has arrived, before its
 * room in the ring is used again; one that is wrong is sent once more.
 * TRAIN_ENOTFOUND, TRAIN_EINVAL, TRAIN_EIO, all with the tensor's name, EIO with
 * the file's; TRAIN_ECORRUPT: wrong twice, and that tensor is all ones;
 * TRAIN_ENOMEM, TRAIN_EDEVICE, TRAIN_ESTATE as of train_copy. After any failure
 * all of [dst] is undefined. */
train_status_t train_safetensors_load (
    train_copier_t *copier, DLTensor *const *dst, train_stream_t dst_stream,
    const train_safetensors_t *file, const char *const *names, size_t n,
    const train_st_load_options_t *opts, train_copy_report_t *ret_report,
    train_error_t *err);

/* train_safetensors_load_start - the same without waiting; one of the copier's
 * copies. [dst] and what it points to are read during the call only.
 *   ret_copy   end with train_copy_wait */
train_status_t train_safetensors_load_start (
    train_copier_t *copier, DLTensor *const *dst, train_stream_t dst_stream,
    const train_safetensors_t *file, const char *const *names, size_t n,
    const train_st_load_options_t *opts, train_copy_t **ret_copy,
    train_error_t *err);

/* train_safetensors_write - replace [path] by a file of these tensors.
 *   entries   (n) written sorted by dtype size (largest first), then name;
 *             two of one name: TRAIN_EINVAL; n may be 0
 *   meta      (n_meta) may be NULL when n_meta is 0
 * On failure [path] is as it was. */
train_status_t train_safetensors_write (const char *path,
                                        const train_st_entry_t *entries,
                                        size_t n, const train_st_meta_t *meta,
                                        size_t n_meta, train_error_t *err);

/* A file whose bytes come piece by piece. One thread at a time. */
typedef struct train_st_writer train_st_writer_t;

/* train_safetensors_create - begin a temporary file beside [path].
 *   entries      (n) as for train_safetensors_write; their data is not looked
 *                at, nothing of them is kept
 *   ret_writer   end with train_safetensors_commit or _abandon */
train_status_t train_safetensors_create (const char *path,
                                         const train_st_entry_t *entries,
                                         size_t n, const train_st_meta_t *meta,
                                         size_t n_meta,
                                         train_st_writer_t **ret_writer,
                                         train_error_t *err);

/* train_safetensors_put - the next [bytes] of tensor [index] of [entries].
 * Tensors in any order and by turns, the bytes of each in theirs.
 * TRAIN_EINVAL: no such tensor, or more than it has; nothing is written then.
 * TRAIN_EIO: the writer can only be abandoned. */
train_status_t train_safetensors_put (train_st_writer_t *writer, size_t index,
                                      const void *data, size_t bytes,
                                      train_error_t *err);

/* train_safetensors_commit - fsync and rename. Frees [writer] in any case.
 * TRAIN_ESTATE: bytes are missing (names the first such tensor's index), or a
 * put failed; [path] is as it was. */
train_status_t train_safetensors_commit (train_st_writer_t *writer,
                                         train_error_t *err);
/* Removes the temporary file; NULL is fine. */
void train_safetensors_abandon (train_st_writer_t *writer);

/* train_safetensors_write_sharded - a set of files of limited size with index.
 *   dir         exists; gets BASE-00001-of-0000N.safetensors and
 *               BASE.safetensors.index.json; BASE.safetensors alone where all
 *               fits one file
 *   base        NULL = "model"; no '/'
 *   max_bytes   of data in a file, > 0; a larger tensor has one of its own;
 *               tensors are dealt out in the order of [entries]
 * All files are complete and synced under temporary names before the index of
 * a former set is removed and they are renamed, the index last: readers find a
 * whole old set, none, or a whole new one. Files of a former set of another
 * length stay. */
train_status_t train_safetensors_write_sharded (
    const char *dir, const char *base, const train_st_entry_t *entries,
    size_t n, const train_st_meta_t *meta, size_t n_meta, size_t max_bytes,
    train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
