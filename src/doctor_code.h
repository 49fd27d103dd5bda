/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Part of the doctor's report on a process: its code. */
#ifndef HEAPTAP_DOCTOR_CODE_H
#define HEAPTAP_DOCTOR_CODE_H

#include "doctor.h"

/* How far stacks through each file can be walked, where its names come from, and JIT code. */
void doctor_describe_code(const struct doctor *doctor, const struct process_points *process);

#endif
