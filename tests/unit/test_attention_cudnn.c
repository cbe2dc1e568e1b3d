/* SPDX-License-Identifier: Apache-2.0
 * test_attention_cudnn.c - what of cuDNN's attention can be tested without a GPU:
 * the graphs on a cuDNN that only records, every failure half-way, the real one
 * asked for an H100's engines, and the choice where there is none */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/attention_cudnn.h"
#include "kernels/attention_graph.h"

#if HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

/* The recording cuDNN. */
struct fake_desc {
    int kind;
    int64_t id, dims[4], strides[4];
};

static struct {
    int live, calls, fail_at; /* fail_at: the call that fails; 0: none */
    int64_t ops;
    struct fake_desc tensors[64];
    int n_tensors;
    int64_t ids[32], n_ids;
    void *pointers[32], *workspace;
} fake;

static int fake_call (void)
{
    return ++fake.calls == fake.fail_at ? 3000 : 0;
}

static const char *fake_text (int status)
{
    (void)status;
    return "FAKE";
}

static void fake_last (char *to, size_t room)
{
    snprintf (to, room, "as told");
}

static int fake_stream (void *handle, void *stream)
{
    (void)handle;
    (void)stream;
    return fake_call ();
}

static int fake_create (int kind, void **ret)
{
    struct fake_desc *d;
    int status = fake_call ();

    if (status != 0)
        return status;
    d = calloc (1, sizeof (*d));
    d->kind = kind;
    *ret = d;
    fake.live++;
    return 0;
}

static int fake_destroy (void *desc)
{
    free (desc);
    fake.live--;
    return 0;
}

static int fake_finalize (void *desc)
{
    struct fake_desc *d = desc;

    if (d->kind == DNN_TENSOR && fake.n_tensors < 64)
        fake.tensors[fake.n_tensors++] = *d;
    return fake_call ();
}

static int fake_set (void *desc, int name, int type, int64_t n,
                     const void *value)
{
    struct fake_desc *d = desc;

    (void)type;
    if (name == DNN_TENSOR_ID)
        memcpy (&d->id, value, sizeof (d->id));
    if (name == DNN_TENSOR_DIMS)
        memcpy (d->dims, value, sizeof (d->dims));
    if (name == DNN_TENSOR_STRIDES)
        memcpy (d->strides, value, sizeof (d->strides));
    if (name == DNN_GRAPH_OPS)
        fake.ops = n;
    if (name == DNN_PACK_IDS)
        memcpy (fake.ids, value, (size_t)(fake.n_ids = n) * 8);
    if (name == DNN_PACK_POINTERS)
        memcpy (fake.pointers, value, (size_t)n * sizeof (void *));
    if (name == DNN_PACK_WORKSPACE)
        memcpy (&fake.workspace, value, sizeof (void *));
    return fake_call ();
}

/* One engine, number 7, without notes; 1000 bytes of workspace. */
static int fake_get (void *desc, int name, int type, int64_t room, int64_t *n,
                     void *value)
{
    int64_t number = name == DNN_ENGINE_INDEX ? 7 : 1000;

    (void)desc;
    (void)type;
    (void)room;
    *n = name == DNN_ENGINE_NOTES ? 0 : 1;
    if (name == DNN_ENGINE_INDEX || name == DNN_PLAN_WORKSPACE)
        memcpy (value, &number, sizeof (number));
    return fake_call ();
}

static int fake_execute (void *handle, void *plan, void *pack)
{
    (void)handle;
    (void)plan;
    (void)pack;
    return fake_call ();
}

static const struct cudnn_api fake_api = {
    .version = 91900,
    .error_text = fake_text,
    .last_error = fake_last,
    .set_stream = fake_stream,
    .desc_create = fake_create,
    .desc_destroy = fake_destroy,
    .desc_finalize = fake_finalize,
    .desc_set = fake_set,
    .desc_get = fake_get,
    .execute = fake_execute,
};

static const struct attention_shape shape = {.dtype = ATTENTION_BF16,
                                             .B = 2,
                                             .T = 256,
                                             .H = 8,
                                             .G = 2,
                                             .D = 64,
                                             .grad = true};

static void reset (int fail_at)
{
    assert_int_equal (fake.live, 0);
    memset (&fake, 0, sizeof (fake));
    fake.fail_at = fail_at;
}

static bool make (struct cudnn_plan *p, bool bwd,
                  const struct attention_shape *s, char *why)
{
    return cudnn_plan_make (p, &fake_api, &fake, NULL, bwd, s, why, 256);
}

static const struct fake_desc *tensor_of (int64_t id)
{
    for (int i = 0; i < fake.n_tensors; i++)
        if (fake.tensors[i].id == id)
            return &fake.tensors[i];
    fail_msg ("no tensor %d", (int)id);
    return NULL;
}

static void is (int64_t id, const int64_t *dims, const int64_t *strides)
{
    const struct fake_desc *t = tensor_of (id);

    assert_memory_equal (t->dims, dims, sizeof (t->dims));
    assert_memory_equal (t->strides, strides, sizeof (t->strides));
}

/* Operations, and the views of the packed rows of (8 + 2 * 2) * 64 = 768. */
static void test_graphs (void **state)
{
    const int64_t q[2][4] = {{2, 8, 256, 64}, {196608, 64, 768, 1}};
    const int64_t k[2][4] = {{2, 2, 64, 256}, {196608, 64, 1, 768}};
    const int64_t v[2][4] = {{2, 2, 256, 64}, {196608, 64, 768, 1}};
    const int64_t y[2][4] = {{2, 8, 256, 64}, {131072, 64, 512, 1}};
    const int64_t lse[2][4] = {{2, 8, 256, 1}, {2048, 256, 1, 1}};
    struct attention_shape s = shape;
    struct cudnn_plan p;
    char why[256];

    (void)state;
    reset (0);
    assert_true (make (&p, false, &s, why));
    assert_int_equal (fake.ops, 14);
    assert_int_equal (fake.live, 1); /* the plan */
    assert_int_equal (p.engine, 7);
    is (AT_Q, q[0], q[1]);
    is (AT_K, k[0], k[1]);
    is (AT_V, v[0], v[1]);
    is (AT_Y, y[0], y[1]);
    is (AT_LSE, lse[0], lse[1]);
    cudnn_plan_drop (&p, &fake_api);
    cudnn_plan_drop (&p, &fake_api);

    reset (0);
    assert_true (make (&p, true, &s, why));
    assert_int_equal (fake.ops, 24);
    is (AT_DQ, q[0], q[1]);
    is (AT_DK, v[0], v[1]);
    is (AT_DV, v[0], v[1]);
    is (AT_DY, y[0], y[1]);
    cudnn_plan_drop (&p, &fake_api);

    reset (0);
    s.deterministic = true;
    assert_true (make (&p, true, &s, why));
    assert_int_equal (fake.ops, 23);
    cudnn_plan_drop (&p, &fake_api);

    reset (0);
    s.G = s.H; /* no sums over heads */
    assert_true (make (&p, true, &s, why));
    assert_int_equal (fake.ops, 21);
    cudnn_plan_drop (&p, &fake_api);
    reset (0);
}

/* Whichever call fails: an error in words, and nothing is left behind. */
static void test_failures (void **state)
{
    struct cudnn_plan p;
    char why[256];
    int calls;

    (void)state;
    for (int bwd = 0; bwd < 2; bwd++) {
        reset (0);
        assert_true (make (&p, bwd, &shape, why));
        calls = fake.calls;
        cudnn_plan_drop (&p, &fake_api);
        assert_true (calls > 100);
        for (int i = 1; i <= calls; i++) {
            reset (i);
            why[0] = '\0';
            if (make (&p, bwd, &shape, why))
                cudnn_plan_drop (&p, &fake_api); /* the engine's number alone */
            else
                assert_non_null (strstr (why, bwd ? "backward" : "forward"));
        }
    }
    reset (0);
}

static const char *pointer_of (int64_t id)
{
    for (int64_t i = 0; i < fake.n_ids; i++)
        if (fake.ids[i] == id)
            return fake.pointers[i];
    fail_msg ("no pointer %d", (int)id);
    return NULL;
}

/* The pointers of a call: parts of the packed rows, and of the scratch, which
 * hold what they must without lying on each other. */
static void test_pointers (void **state)
{
    static char qkv[2048], dqkv[2048], y[4], dy[4], scratch[65536];
    static float lse[4];
    struct cudnn_call c = {.y = y,
                           .lse = lse,
                           .dqkv = dqkv,
                           .qkv = qkv,
                           .dy = dy,
                           .scale = 0.5F,
                           .scratch = scratch};
    size_t rows = shape.B * shape.H * shape.T;
    struct cudnn_plan p;
    char why[256];

    (void)state;
    reset (0);
    assert_true (make (&p, true, &shape, why));
    assert_true (cudnn_plan_run (&p, &fake_api, &fake, &shape, &c, why, 256));
    assert_ptr_equal (pointer_of (AT_Q), qkv);
    assert_ptr_equal (pointer_of (AT_K), qkv + 8 * 64 * 2);
    assert_ptr_equal (pointer_of (AT_V), qkv + 10 * 64 * 2);
    assert_ptr_equal (pointer_of (AT_DQ), dqkv);
    assert_ptr_equal (pointer_of (AT_DK), dqkv + 8 * 64 * 2);
    assert_ptr_equal (pointer_of (AT_DV), dqkv + 10 * 64 * 2);
    assert_ptr_equal (pointer_of (AT_Y), y);
    assert_ptr_equal (pointer_of (AT_DY), dy);
    assert_true (*(const float *)pointer_of (AT_SCALE) == 0.5F);
    assert_true (*(const float *)pointer_of (AT_ONE) == 1);
    assert_ptr_equal (fake.workspace, scratch);
    assert_ptr_equal (pointer_of (AT_ROWSUM), scratch + 1024);
    assert_ptr_equal (pointer_of (AT_DQ_SUM), scratch + 1024 + rows * 4);
    assert_int_equal (p.scratch, 1024 + rows * 4 + rows * 64 * 4);

    fake.fail_at = fake.calls + 1;
    assert_false (cudnn_plan_run (&p, &fake_api, &fake, &shape, &c, why, 256));
    assert_non_null (strstr (why, "FAKE"));
    cudnn_plan_drop (&p, &fake_api);
    reset (0);
}

static void test_serves (void **state)
{
    struct cudnn_api old = fake_api;
    struct attention_shape s = shape;
    char why[256];

    (void)state;
    assert_true (cudnn_serves (&fake_api, &s, why, sizeof (why)));
    s.T = 129;
    assert_true (cudnn_serves (&fake_api, &s, why, sizeof (why)));
    old.version = 91500;
    assert_false (cudnn_serves (&old, &s, why, sizeof (why)));
    assert_non_null (strstr (why, "9.15.0"));
    s.T = 128;
    assert_true (cudnn_serves (&old, &s, why, sizeof (why)));
    s.D = 136;
    assert_false (cudnn_serves (&fake_api, &s, why, sizeof (why)));
    s.D = 20;
    assert_false (cudnn_serves (&fake_api, &s, why, sizeof (why)));
    s.D = 64;
    s.dtype = ATTENTION_F32;
    assert_false (cudnn_serves (&fake_api, &s, why, sizeof (why)));
}

static const char h100[] =
    "{\"cudaDeviceId\":0,\"deviceName\":\"NVIDIA H100 80GB HBM3\","
    "\"deviceVer\":900,\"driverVer\":13000,\"isTccDriver\":0,"
    "\"l2CacheSize\":52428800,\"maxBlockSize\":[1024,1024,64],"
    "\"maxCtasPerSM\":32,\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"memClockRateKHz\":2619000,"
    "\"multiProcessorCount\":132,\"pciDeviceId\":590352606,"
    "\"regsPerBlock\":65536,\"reservedSharedMemoryPerBlock\":1024,"
    "\"smClockRateKHz\":1980000,\"supportCoopLaunch\":1,"
    "\"totalGlobalMem\":85899345920,\"warpSize\":32}";

/* Of the sanitizers, where they are. */
void __lsan_disable (void) __attribute__ ((weak));
void __lsan_enable (void) __attribute__ ((weak));

/* The real cuDNN's engines for an H100; nothing but the kernels' loading wants
 * a GPU. The toolkit's stub stands for the driver. */
static void test_engines (void **state)
{
    static const size_t sizes[][3] = {
        {2048, 8, 64}, {2048, 2, 128}, {129, 1, 80}, {1024, 8, 128}};
    const struct cudnn_api *api;
    const char *why;
    char text[256] = "";
    int same;

    (void)state;
    if (__lsan_disable) /* cuDNN keeps memory that nothing points to */
        __lsan_disable ();
    (void)dlopen ("/usr/local/cuda/lib64/stubs/libcuda.so",
                  RTLD_NOW | RTLD_GLOBAL);
    (void)dlopen ("/usr/local/cuda/lib64/libcudnn.so.9",
                  RTLD_NOW | RTLD_GLOBAL);
    api = cudnn_open (&why);
    if (!api) {
        print_message ("%s\n", why);
        skip ();
    }
    for (size_t i = 0; i < 16; i++) {
        const size_t *n = sizes[i / 4];
        struct attention_shape s = {.dtype =
                                        i % 2 ? ATTENTION_F16 : ATTENTION_BF16,
                                    .B = 2,
                                    .T = n[0],
                                    .H = 8,
                                    .G = n[1],
                                    .D = n[2],
                                    .deterministic = i / 2 % 2,
                                    .grad = true};

        for (int bwd = 0; bwd < 2; bwd++)
            if (cudnn_engines (api, h100, bwd, &s, &same, text, sizeof (text))
                < 1)
                fail_msg ("T %zu D %zu: no engine: %s", s.T, s.D, text);
    }
    if (__lsan_enable)
        __lsan_enable ();
}

/* Bytes of scratch of a 1b model's attention, 8 x 2048, without a GPU; those of an
 * H200 were 2178 MiB with cuDNN. */
static void test_foreseen (void **state)
{
    struct attention_shape s = {.dtype = ATTENTION_BF16,
                                .B = 8,
                                .T = 2048,
                                .H = 32,
                                .G = 8,
                                .D = 64,
                                .deterministic = true,
                                .grad = true};

    (void)state;
#if HAVE_CUDA
    assert_int_equal (attention_foresee (&s, false) >> 20, 2178);
    assert_int_equal (attention_foresee (&s, true) >> 20, 132);
    s.T = 256; /* cuDNN keeps these */
    assert_true (attention_foresee (&s, true) > 4 << 20);
    assert_int_equal (attention_foresee (&s, true),
                      attention_foresee (&s, false));
    s.T = 2048;
    s.deterministic = false;
    assert_int_equal (attention_foresee (&s, false) >> 20, 258);
    assert_int_equal (attention_foresee (&s, true) >> 20, 132);
    s.deterministic = s.documents = true;
    assert_int_equal (attention_foresee (&s, true),
                      attention_foresee (&s, false));
    s.documents = s.grad = false;
    assert_int_equal (attention_foresee (&s, true), 0);
#else
    assert_int_equal (attention_foresee (&s, true), 0);
#endif
}

/* Without a GPU cuDNN has no handle: ours is chosen, and says why. */
static void test_choice (void **state)
{
    struct attention *a = attention_create ();
    struct attention_shape s = shape;
    struct attention_choice c;

    (void)state;
#if !HAVE_CUDA
    assert_false (attention_choose (a, &s, &c));
    assert_non_null (strstr (attention_error (a), "without CUDA"));
    attention_destroy (a);
    return;
#endif
    assert_true (attention_choose (a, &s, &c));
    if (c.engine == ATTENTION_CUDNN) {
        attention_destroy (a);
        skip (); /* a GPU is here: tests/gpu/test_attention.c */
    }
    assert_non_null (strstr (c.why, "own kernels: "));
    assert_true (strstr (c.why, "cuDNN") || strstr (c.why, "libcudnn"));
    assert_true (c.deterministic);
    assert_int_equal (c.scratch_fwd, 0);
    assert_int_equal (c.scratch_bwd, s.B * s.H * s.T * 4);
    attention_engine_only (a, ATTENTION_CUDNN);
    assert_false (attention_choose (a, &s, &c));
    assert_non_null (strstr (attention_error (a), "attention: "));
    attention_destroy (a);
    attention_destroy (NULL);
}

#if HAVE_CUDA
/* Where our kernels cannot be launched the call says so itself. */
static void test_launch (void **state)
{
    struct attention *a = attention_create ();
    struct attention_shape s = {
        .B = 1, .T = 64, .H = 2, .G = 2, .D = 64, .grad = true};
    static float x[1];

    (void)state;
    if (cudaFree (NULL) == cudaSuccess) {
        attention_destroy (a);
        skip (); /* a GPU is here: tests/gpu/test_attention.c */
    }
    attention_engine_only (a, ATTENTION_OWN);
    for (int dtype = ATTENTION_F32; dtype <= ATTENTION_F16; dtype++) {
        s.dtype = (enum attention_dtype)dtype;
        assert_false (attention_fwd (a, &s, x, x, x, 1, NULL, NULL));
        assert_non_null (strstr (attention_error (a), "1 x 64, 2 heads of 64"));
        assert_false (attention_bwd (a, &s, x, x, x, x, x, 1, x, NULL));
        assert_non_null (strstr (attention_error (a), "1 x 64, 2 heads of 64"));
    }
    attention_destroy (a);
}
#endif

static void test_refused (void **state)
{
    static const size_t bad[][5] = {
        {0, 1, 1, 1, 64}, {1, 0, 1, 1, 64}, {1, 1, 0, 1, 64}, {1, 1, 1, 0, 64},
        {1, 1, 3, 2, 64}, {1, 1, 1, 1, 0},  {1, 1, 1, 1, 63}, {1, 1, 1, 1, 258},
    };
    struct attention *a = attention_create ();
    struct attention_choice c;

    (void)state;
    for (size_t i = 0; i < sizeof (bad) / sizeof (*bad); i++) {
        struct attention_shape s = {.dtype = ATTENTION_BF16,
                                    .B = bad[i][0],
                                    .T = bad[i][1],
                                    .H = bad[i][2],
                                    .G = bad[i][3],
                                    .D = bad[i][4]};

        assert_false (attention_choose (a, &s, &c));
        print_message ("%s\n", attention_error (a));
        assert_non_null (strstr (attention_error (a), "attention: "));
    }
    attention_destroy (a);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_graphs),
        cmocka_unit_test (test_failures),
        cmocka_unit_test (test_pointers),
        cmocka_unit_test (test_serves),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_engines),
        cmocka_unit_test (test_foreseen),
        cmocka_unit_test (test_choice),
#if HAVE_CUDA
        cmocka_unit_test (test_launch),
#endif
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
