/* SPDX-License-Identifier: Apache-2.0
 * completion_text.h - the files of etc/completions as text; the build makes
 * completion_text.c of them. */
#ifndef RV_COMPLETION_TEXT_H
#define RV_COMPLETION_TEXT_H

extern const char completion_bash[], completion_zsh[], completion_fish[];

#endif
