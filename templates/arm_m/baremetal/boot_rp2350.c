// What the RP2350's boot ROM looks for in the first 4 KiB of flash: the smallest
// image definition of an Arm image (datasheet 5.9.5.1). The vector table is at the
// image's beginning, where the ROM expects it.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdint.h>

__attribute__((section(".boot_behind_vectors"), used)) const uint32_t image_definition[] = {
    0xFFFFDED3u, // start
    0x10210142u, // type of image: executable, secure, Arm, RP2350; one word
    0x000001FFu, // last item; one word before it
    0x00000000u, // no other block
    0xAB123579u, // end
};
