/* SPDX-License-Identifier: Apache-2.0
 * verified_copy.c - a tensor from the host to a device and back, its bytes
 * checked: cc verified_copy.c $(pkg-config --cflags --libs train) */
#include <stdio.h>
#include <string.h>
#include <train.h>

#define N 1000

static void say (void *arg, const char *text)
{
    (void)arg;
    fprintf (stderr, "verified_copy: %s\n", text);
}

/* float on the host to bf16 at [to], and that back to float: three tensors,
 * two copies, each done when it returns. */
static train_status_t there_and_back (train_copier_t *copier, float *x,
                                      uint16_t *to, float *y,
                                      train_error_t *err)
{
    const int64_t shape[] = {N};
    train_copy_options_t opts = {.size = sizeof (opts),
                                 .verify = TRAIN_VERIFY_FULL};
    train_copy_report_t report;
    train_tensor_t a, b, c;
    train_status_t status;

    if ((status = train_tensor_view (&a, x, TRAIN_F32, 1, shape, err))
        || (status = train_tensor_view (&b, to, TRAIN_BF16, 1, shape, err))
        || (status = train_tensor_view (&c, y, TRAIN_F32, 1, shape, err)))
        return status;
    /* For memory of a GPU: b.t.device.device_type = kDLCUDA. */
    status = train_copy (copier, &b.t, NULL, &a.t, NULL, &opts, &report, err);
    if (status == TRAIN_OK)
        status =
            train_copy (copier, &c.t, NULL, &b.t, NULL, &opts, &report, err);
    if (status == TRAIN_OK)
        printf ("%llu bytes back, verified: %s\n",
                (unsigned long long)report.bytes,
                report.verified ? "yes" : "no");
    return status;
}

int main (void)
{
    static float x[N], y[N];
    static uint16_t half[N];
    train_copier_options_t opts = {
        .size = sizeof (opts), .device = "host", .log = say};
    train_copier_t *copier = NULL;
    train_error_t err = {0};
    train_status_t status;

    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 256);
    status = train_copier_create (&opts, &copier, &err);
    if (status == TRAIN_OK)
        status = there_and_back (copier, x, half, y, &err);
    train_copier_destroy (copier);
    if (status != TRAIN_OK) {
        fprintf (stderr, "verified_copy: cannot copy: %s\n", err.text);
        return 1;
    }
    return memcmp (x, y, sizeof (x)) != 0;
}
