// The stand-in's arithmetic: TFLite's reference, one value after the other.
// FAKE_EXTRA_SCRATCH asks for more than was planned, FAKE_STATUS refuses convolutions, FAKE_ERROR
// flips bits of their first output, FAKE_LOOPS makes them slow, FAKE_CRASH ends them by a fault.

#include "arm_nnfunctions.h"

#ifndef FAKE_EXTRA_SCRATCH
#define FAKE_EXTRA_SCRATCH 0
#endif
#ifndef FAKE_STATUS
#define FAKE_STATUS 0
#endif
#ifndef FAKE_ERROR
#define FAKE_ERROR 0
#endif
#ifndef FAKE_LOOPS
#define FAKE_LOOPS 0
#endif
#ifndef FAKE_CRASH
#define FAKE_CRASH 0
#endif

static int8_t scaled(int32_t sum, int32_t multiplier, int32_t shift, int32_t offset,
                     cmsis_nn_activation clamp) {
    int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
    int64_t product = (int64_t)(int32_t)((uint32_t)sum << left) * multiplier;
    int32_t high = (int32_t)((product + (1 << 30)) >> 31);
    int32_t magnitude = high < 0 ? -high : high;
    int32_t rounded =
        right ? (int32_t)(((int64_t)magnitude + (1ll << right >> 1)) >> right) : magnitude;
    int32_t value = (high < 0 ? -rounded : rounded) + offset;
    value = value < clamp.min ? clamp.min : value;
    return (int8_t)(value > clamp.max ? clamp.max : value);
}

arm_cmsis_nn_status
arm_convolve_wrapper_s8(const cmsis_nn_context *ctx, const cmsis_nn_conv_params *conv_params,
                        const cmsis_nn_per_channel_quant_params *quant_params,
                        const cmsis_nn_dims *input_dims, const int8_t *input_data,
                        const cmsis_nn_dims *filter_dims, const int8_t *filter_data,
                        const cmsis_nn_dims *bias_dims, const int32_t *bias_data,
                        const cmsis_nn_dims *output_dims, int8_t *output_data) {
    const cmsis_nn_conv_params *p = conv_params;
    const cmsis_nn_dims *in = input_dims, *f = filter_dims, *out = output_dims;
    // The whole of the scratch is the function's to write.
    for (int32_t i = 0; i < ctx->size; i++) {
        ((int8_t *)ctx->buf)[i] = (int8_t)0xa5;
    }
    if (bias_dims->c != out->c || f->n != out->c || f->c != in->c || in->n != 1) {
        return -1;
    }
    for (int32_t y = 0; y < out->h; y++) {
        for (int32_t x = 0; x < out->w; x++) {
            for (int32_t o = 0; o < out->c; o++) {
                int32_t sum = bias_data[o];
                for (int32_t ky = 0; ky < f->h; ky++) {
                    for (int32_t kx = 0; kx < f->w; kx++) {
                        int32_t iy = y * p->stride.h - p->padding.h + ky * p->dilation.h;
                        int32_t ix = x * p->stride.w - p->padding.w + kx * p->dilation.w;
                        if (iy < 0 || iy >= in->h || ix < 0 || ix >= in->w) {
                            continue;
                        }
                        for (int32_t c = 0; c < in->c; c++) {
                            int32_t pixel = input_data[(iy * in->w + ix) * in->c + c];
                            int32_t tap = filter_data[((o * f->h + ky) * f->w + kx) * f->c + c];
                            sum += (pixel + p->input_offset) * tap;
                        }
                    }
                }
                output_data[(y * out->w + x) * out->c + o] =
                    scaled(sum, quant_params->multiplier[o], quant_params->shift[o],
                           p->output_offset, p->activation);
            }
        }
    }
    output_data[0] = (int8_t)(output_data[0] ^ FAKE_ERROR);
    for (volatile int32_t loop = 0; loop < FAKE_LOOPS; loop++) {
    }
    if (FAKE_CRASH) {
        __builtin_trap();
    }
    return FAKE_STATUS;
}

int32_t arm_convolve_wrapper_s8_get_buffer_size(const cmsis_nn_conv_params *conv_params,
                                                const cmsis_nn_dims *input_dims,
                                                const cmsis_nn_dims *filter_dims,
                                                const cmsis_nn_dims *output_dims) {
    (void)conv_params;
    (void)output_dims;
    int32_t column = filter_dims->h * filter_dims->w * input_dims->c;
    return 4 * ((column + 3) / 4 * 4) + FAKE_EXTRA_SCRATCH;
}

arm_cmsis_nn_status
arm_fully_connected_s8(const cmsis_nn_context *ctx, const cmsis_nn_fc_params *fc_params,
                       const cmsis_nn_per_tensor_quant_params *quant_params,
                       const cmsis_nn_dims *input_dims, const int8_t *input_data,
                       const cmsis_nn_dims *filter_dims, const int8_t *filter_data,
                       const cmsis_nn_dims *bias_dims, const int32_t *bias_data,
                       const cmsis_nn_dims *output_dims, int8_t *output_data) {
    (void)ctx;
    if (filter_dims->n != input_dims->c || bias_dims->c != output_dims->c) {
        return -1;
    }
    for (int32_t o = 0; o < output_dims->c; o++) {
        int32_t sum = bias_data[o];
        for (int32_t i = 0; i < filter_dims->n; i++) {
            sum += (input_data[i] + fc_params->input_offset) * filter_data[o * filter_dims->n + i];
        }
        output_data[o] = scaled(sum, quant_params->multiplier, quant_params->shift,
                                fc_params->output_offset, fc_params->activation);
    }
    return 0;
}

int32_t arm_fully_connected_s8_get_buffer_size(const cmsis_nn_dims *filter_dims) {
    (void)filter_dims;
    return 0;
}

arm_cmsis_nn_status
arm_elementwise_mul_s8(const int8_t *input_1_vect, const int8_t *input_2_vect,
                       const int32_t input_1_offset, const int32_t input_2_offset, int8_t *output,
                       const int32_t out_offset, const int32_t out_mult, const int32_t out_shift,
                       const int32_t out_activation_min, const int32_t out_activation_max,
                       const int32_t block_size) {
    const cmsis_nn_activation clamp = {out_activation_min, out_activation_max};
    for (int32_t i = 0; i < block_size; i++) {
        int32_t product = (input_1_vect[i] + input_1_offset) * (input_2_vect[i] + input_2_offset);
        output[i] = scaled(product, out_mult, out_shift, out_offset, clamp);
    }
    return 0;
}
