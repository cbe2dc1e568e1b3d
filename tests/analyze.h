/* SPDX-License-Identifier: Apache-2.0
 * analyze.h - what -fanalyzer cannot see: a call that sets an error returns
 * its code, which is never the code of success.
 *
 * analyze.sh includes it before each file but those that define the calls. */
#ifndef RV_TESTS_ANALYZE_H
#define RV_TESTS_ANALYZE_H

#include "plan/error.h"

#define error_set(err, code, ...)                                              \
    ((error_set)((err), (code), __VA_ARGS__), (code))
#ifdef ANALYZE_JOB
#include "config.h"
#include "job/job_impl.h"
#define job_error(err, code, ...)                                              \
    ((job_error)((err), (code), __VA_ARGS__), (code))
#endif

#endif
