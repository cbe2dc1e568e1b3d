/* SPDX-License-Identifier: Apache-2.0
 * test_gemm_lt.c - what gemm_lt asks of cuBLASLt, by a stand-in that multiplies on
 * the host, column-major as the library does; and saved choices */
#include "kern_check.h"

#include "kernels/gemm.h"
#include "kernels/gemm_lt_impl.h"

struct desc {
    int ta, tb, epilogue, bias_type;
    const float *bias;
};

struct layout {
    int dtype;
    uint64_t rows, columns;
    int64_t ld;
};

struct pref {
    uint32_t schemes, align[4];
    uint64_t room;
};

static struct {
    int made;       /* descriptors that live */
    int candidates; /* that the heuristic knows; the first is in place */
    uint64_t ran;   /* data[0] of the algorithm */
    struct pref pref;
} fake;

static size_t version (void)
{
    return 130100;
}

static const char *status_text (int status)
{
    return status == LT_NOT_SUPPORTED ? "not supported" : "failed";
}

static int desc_create (void **ret, int compute, int scale)
{
    assert_int_equal (scale, LT_F32);
    assert_true (compute == LT_COMPUTE_F32 || compute == LT_COMPUTE_TF32);
    fake.made++;
    *ret = calloc (1, sizeof (struct desc));
    return LT_SUCCESS;
}

static int release (void *at)
{
    fake.made--;
    free (at);
    return LT_SUCCESS;
}

static int desc_set (void *desc, int what, const void *value, size_t size)
{
    struct desc *d = desc;

    if (what == LT_DESC_BIAS) {
        assert_int_equal (size, sizeof (void *));
        memcpy (&d->bias, value, size);
        return LT_SUCCESS;
    }
    assert_int_equal (size, sizeof (int));
    memcpy (what == LT_DESC_TRANSA     ? &d->ta
            : what == LT_DESC_TRANSB   ? &d->tb
            : what == LT_DESC_EPILOGUE ? &d->epilogue
                                       : &d->bias_type,
            value, size);
    return LT_SUCCESS;
}

static int layout_create (void **ret, int dtype, uint64_t rows,
                          uint64_t columns, int64_t ld)
{
    struct layout *l = malloc (sizeof (*l));

    *l = (struct layout){dtype, rows, columns, ld};
    fake.made++;
    *ret = l;
    return LT_SUCCESS;
}

static int pref_create (void **ret)
{
    fake.made++;
    *ret = calloc (1, sizeof (struct pref));
    ((struct pref *)*ret)->schemes = LT_REDUCTION_ALL;
    return LT_SUCCESS;
}

static int pref_set (void *pref, int what, const void *value, size_t size)
{
    struct pref *p = pref;

    if (what == LT_PREF_WORKSPACE)
        memcpy (&p->room, value, size);
    else if (what == LT_PREF_REDUCTIONS)
        memcpy (&p->schemes, value, size);
    else
        memcpy (&p->align[what - LT_PREF_ALIGN_A], value, size);
    return LT_SUCCESS;
}

/* data[0] is the candidate's number, data[1] its reduction scheme. */
static int heuristic (void *handle, void *desc, void *a, void *b, void *c,
                      void *d, void *pref, int wanted, struct lt_found *found,
                      int *ret_n)
{
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d;
    fake.pref = *(struct pref *)pref;
    *ret_n = 0;
    for (int i = 0; i < fake.candidates && i < wanted; i++)
        found[(*ret_n)++] =
            (struct lt_found){.algo.data = {(uint64_t)i + 1, i == 0}};
    return LT_SUCCESS;
}

static int config_get (const struct lt_algo *algo, int what, void *value,
                       size_t size, size_t *ret_size)
{
    uint32_t scheme = what == LT_CONFIG_REDUCTION ? (uint32_t)algo->data[1] : 0;

    memcpy (value, &scheme, size);
    *ret_size = size;
    return LT_SUCCESS;
}

static float of (const float *x, const struct layout *l, int t, uint64_t i,
                 uint64_t j)
{
    uint64_t row = t ? j : i, column = t ? i : j;

    assert_true (row < l->rows && column < l->columns);
    return x[row + column * (uint64_t)l->ld];
}

static int matmul (void *handle, void *desc, const void *alpha, const void *a,
                   void *la, const void *b, void *lb, const void *beta,
                   const void *c, void *lc, void *d, void *ld,
                   const struct lt_algo *algo, void *workspace, size_t size,
                   void *stream)
{
    const struct desc *x = desc;
    const struct layout *l = lc, *first = la;
    uint64_t k = x->ta ? first->rows : first->columns;

    (void)handle, (void)workspace, (void)size, (void)stream;
    assert_true (c == d && lc == ld && l->dtype == LT_F32);
    assert_int_equal (x->epilogue, x->bias ? LT_EPILOGUE_BIAS : 0);
    fake.ran = algo->data[0];
    for (uint64_t i = 0; i < l->rows; i++) {
        for (uint64_t j = 0; j < l->columns; j++) {
            float *to = (float *)d + i + j * (uint64_t)l->ld, sum = 0;

            for (uint64_t e = 0; e < k; e++)
                sum += of (a, la, x->ta, i, e) * of (b, lb, x->tb, e, j);
            sum *= *(const float *)alpha;
            sum += x->bias ? x->bias[i] : 0;
            *to = *(const float *)beta == 0 ? sum
                                            : sum + *(const float *)beta * *to;
        }
    }
    return LT_SUCCESS;
}

static const struct cublaslt_api api = {
    .version = version,
    .status_text = status_text,
    .destroy = release,
    .desc_create = desc_create,
    .desc_destroy = release,
    .desc_set = desc_set,
    .layout_create = layout_create,
    .layout_destroy = release,
    .pref_create = pref_create,
    .pref_destroy = release,
    .pref_set = pref_set,
    .heuristic = heuristic,
    .config_get = config_get,
    .matmul = matmul,
};

/* Untimed: without a GPU there is nothing to time. */
static struct gemm_lt *object (bool deterministic)
{
    struct gemm_lt *g = calloc (1, sizeof (*g));

    assert_non_null (g);
    g->api = &api;
    g->workspace_bytes = 4096;
    g->opts.untimed = true;
    g->opts.deterministic = deterministic;
    g->capability = 90;
    g->multiprocessors = 132;
    fake.candidates = 3;
    return g;
}

enum { N = 5, IN = 7, OUT = 3 };

/* The layer's products in double beside what the stand-in was told to do. */
static void test_products (void **state)
{
    struct gemm_lt *g = object (false);
    double *x = numbers (N * IN, 1), *w = numbers (OUT * IN, 2);
    double *b = numbers (OUT, 3), *dy = numbers (N * OUT, 4);
    double *y = zeros (N * OUT), *dx = zeros (N * IN), *dw = zeros (OUT * IN);
    float *fx = narrow (x, N * IN), *fw = narrow (w, OUT * IN);
    float *fb = narrow (b, OUT), *fdy = narrow (dy, N * OUT);
    float fy[N * OUT], fdx[N * IN], fdw[OUT * IN];

    (void)state;
    memset (fy, 0xff, sizeof (fy));
    memset (fdx, 0xff, sizeof (fdx));
    memset (fdw, 0xff, sizeof (fdw));
    gemm_plain_f64 (false, true, N, OUT, IN, 1, x, IN, w, IN, 0, y, OUT);
    gemm_plain_f64 (false, false, N, IN, OUT, 1, dy, OUT, w, IN, 0, dx, IN);
    gemm_plain_f64 (true, false, OUT, IN, N, 1, dy, OUT, x, IN, 0, dw, IN);
    assert_int_equal (
        gemm_lt_fwd (g, fy, fx, fw, NULL, GEMM_LT_F32, N, IN, OUT, NULL, NULL),
        GEMM_LT_OK);
    check_f32 ("y", fy, y, N * OUT, F32_BOUND);
    for (size_t i = 0; i < N * OUT; i++)
        y[i] += b[i % OUT];
    (void)gemm_lt_fwd (g, fy, fx, fw, fb, GEMM_LT_F32, N, IN, OUT, NULL, NULL);
    check_f32 ("y + bias", fy, y, N * OUT, F32_BOUND);
    (void)gemm_lt_dx (g, fdx, fdy, fw, GEMM_LT_F32, N, IN, OUT, NULL, NULL);
    check_f32 ("dx", fdx, dx, N * IN, F32_BOUND);
    for (int i = 0; i < 3; i++)
        (void)gemm_lt_dw (g, fdw, GEMM_LT_F32, i > 0, fdy, fx, GEMM_LT_F32, N,
                          IN, OUT, NULL, NULL);
    for (size_t i = 0; i < OUT * IN; i++)
        dw[i] *= 3;
    check_f32 ("dw", fdw, dw, OUT * IN, F32_BOUND);
    assert_int_equal (g->count, 5); /* one plan a product, not a call */
    assert_true (fake.pref.align[0] >= 4 && fake.pref.align[0] <= 256);
    gemm_lt_destroy (g);
    assert_int_equal (fake.made, 0);
    free (x), free (w), free (b), free (dy), free (y), free (dx), free (dw);
    free (fx), free (fw), free (fb), free (fdy);
}

static enum gemm_lt_status small (struct gemm_lt *g, size_t n, char *why)
{
    static float a[64], c[64];

    return gemm_lt_fwd (g, c, a, a, NULL, GEMM_LT_F32, n, 4, 4, NULL, why);
}

/* In place, a sum hangs on timing: such candidates are passed over. */
static void test_deterministic (void **state)
{
    struct gemm_lt *g = object (false), *fixed = object (true);
    char why[GEMM_LT_WHY];

    (void)state;
    assert_int_equal (small (g, 2, why), GEMM_LT_OK);
    assert_int_equal (fake.ran, 1);
    assert_int_equal (small (fixed, 2, why), GEMM_LT_OK);
    assert_int_equal (fake.ran, 2);
    assert_int_equal (fake.pref.schemes, 6);
    fake.candidates = 1;
    assert_int_equal (small (fixed, 3, why), GEMM_LT_ENOTSUP);
    assert_non_null (strstr (why, "3x4x4"));
    assert_non_null (strstr (why, "deterministic"));
    gemm_lt_destroy (g);
    gemm_lt_destroy (fixed);
    assert_int_equal (fake.made, 0);
}

static void test_choices (void **state)
{
    struct gemm_lt *g = object (true), *h = object (true), *other;
    char *bytes, why[GEMM_LT_WHY];
    size_t n;

    (void)state;
    assert_int_equal (small (g, 2, why), GEMM_LT_OK);
    assert_int_equal (small (g, 3, why), GEMM_LT_OK);
    n = gemm_lt_choices_save (g, NULL, 0);
    bytes = malloc (n);
    memset (bytes, 7, n);
    assert_int_equal (gemm_lt_choices_save (g, bytes, n - 1), n);
    assert_true (bytes[0] == 7);
    assert_int_equal (gemm_lt_choices_save (g, bytes, n), n);
    /* loaded, nothing is asked of the library's heuristic */
    assert_int_equal (gemm_lt_choices_load (h, bytes, n, why), GEMM_LT_OK);
    fake.candidates = 0;
    assert_int_equal (small (h, 3, why), GEMM_LT_OK);
    assert_int_equal (fake.ran, 2);
    assert_int_equal (small (h, 4, why), GEMM_LT_ENOTSUP);
    /* every damaged byte is found */
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x10;
        assert_int_not_equal (gemm_lt_choices_load (h, bytes, n, why),
                              GEMM_LT_OK);
        bytes[i] ^= 0x10;
        assert_int_equal (gemm_lt_choices_load (h, bytes, i, why),
                          GEMM_LT_EFORMAT);
    }
    other = object (true);
    other->multiprocessors = 114;
    assert_int_equal (gemm_lt_choices_load (other, bytes, n, why),
                      GEMM_LT_EMISMATCH);
    assert_non_null (strstr (why, "132"));
    assert_non_null (strstr (why, "114"));
    assert_int_equal (other->count, 0);
    free (bytes);
    gemm_lt_destroy (g);
    gemm_lt_destroy (h);
    gemm_lt_destroy (other);
}

static void count (void *arg, const char *text)
{
    int *seen = arg;

    seen[0]++;
    seen[1] += strstr (text, "multiples of 4 bytes, not 16") != NULL;
}

static void test_report (void **state)
{
    struct gemm_lt *g = object (false);
    static _Alignas(256) float a[256], c[256];
    int seen[2] = {0};

    (void)state;
    assert_int_equal (
        gemm_lt_fwd (g, c, a, a, NULL, GEMM_LT_F32, 4, 8, 8, NULL, NULL),
        GEMM_LT_OK);
    assert_int_equal (
        gemm_lt_fwd (g, c, a, a, NULL, GEMM_LT_F32, 4, 7, 8, NULL, NULL),
        GEMM_LT_OK);
    gemm_lt_report (g, count, seen);
    assert_true (seen[0] == 2 && seen[1] == 1);
    gemm_lt_destroy (g);
}

/* The real library where there is one; else its names are told. */
static void test_library (void **state)
{
    const char *why = NULL;
    const struct cublaslt_api *real = cublaslt_open (&why);

    (void)state;
    assert_non_null (why);
    if (real)
        assert_true (real->version () >= 120000 && why[0] == '\0');
    else
        assert_true (strstr (why, "libcublasLt.so.13")
                     && strstr (why, "libcublasLt.so.12"));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_products), cmocka_unit_test (test_deterministic),
        cmocka_unit_test (test_choices),  cmocka_unit_test (test_report),
        cmocka_unit_test (test_library),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
