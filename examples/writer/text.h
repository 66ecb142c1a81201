// Text of a language model: how it becomes tokens, and how the next token is chosen.
//
// utvm_deploy computes the same on the host (utvm_deploy/device/writing.py), token for token. So
// all is integers, or single operations of float, which are equal on all processors.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef TEXT_H
#define TEXT_H

#include <stdint.h>

// Token n is the text pieces[n], in UTF-8.
struct vocabulary {
    const char *const *pieces;
    uint16_t count;
    uint16_t end;    // the token that begins and ends a text
    uint16_t length; // the tokens that a text may have: the positions of the cache
};

struct sampler {
    float temperature; // 0 takes the best token; else 0.01 to 100
    uint16_t top_k;    // how many of the best tokens are left; 0 leaves all
    uint32_t state;    // the seed, then what is left of it
};

// The tokens of a text, in tokens[0] to tokens[most - 1]: at each place, the longest piece that is
// there. Returns their number, -1 for what no piece begins with, and -2 if they are more.
int32_t text_encode(const struct vocabulary *vocabulary, const char *text, uint16_t *tokens,
                    uint32_t most);

// The token to go on with, from a score of each token. A score times scale is the real one.
// below is memory for count numbers.
uint16_t text_choose_int8(struct sampler *sampler, const int8_t *scores, float scale,
                          uint16_t *below, uint16_t count);

// The same for real scores.
uint16_t text_choose_float(struct sampler *sampler, const float *scores, uint16_t *below,
                           uint16_t count);

#endif
