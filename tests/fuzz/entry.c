/* SPDX-License-Identifier: MIT */
/* What libFuzzer calls; built once for each target with -DFUZZ_TARGET=fuzz_NAME. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FUZZ_TARGET(data, size);
    return 0;
}
