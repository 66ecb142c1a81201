// A stand-in for CMSIS-NN's header, written for these tests: the types and functions that our
// calls need, with the real ones' names and member order. fake.c does the arithmetic.

#ifndef FAKE_ARM_NNFUNCTIONS_H
#define FAKE_ARM_NNFUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef int32_t arm_cmsis_nn_status;

typedef struct {
    int32_t w, h;
} cmsis_nn_tile;

typedef struct {
    void *buf;
    int32_t size;
} cmsis_nn_context;

typedef struct {
    int32_t n, h, w, c;
} cmsis_nn_dims;

typedef struct {
    int32_t *multiplier;
    int32_t *shift;
} cmsis_nn_per_channel_quant_params;

typedef struct {
    int32_t multiplier;
    int32_t shift;
} cmsis_nn_per_tensor_quant_params;

typedef struct {
    int32_t min, max;
} cmsis_nn_activation;

typedef struct {
    int32_t input_offset;
    int32_t output_offset;
    cmsis_nn_tile stride;
    cmsis_nn_tile padding;
    cmsis_nn_tile dilation;
    cmsis_nn_activation activation;
} cmsis_nn_conv_params;

typedef struct {
    int32_t input_offset;
    int32_t filter_offset;
    int32_t output_offset;
    cmsis_nn_activation activation;
} cmsis_nn_fc_params;

typedef struct {
    const void *data;
    const bool is_int32_bias;
} cmsis_nn_bias_data;

typedef struct {
    int32_t input_offset;
    int32_t output_offset;
    cmsis_nn_tile stride;
    cmsis_nn_tile padding;
    cmsis_nn_tile padding_offsets;
    cmsis_nn_tile dilation;
    cmsis_nn_activation activation;
} cmsis_nn_transpose_conv_params;

typedef struct {
    const int32_t num_dims;
    const uint32_t *permutations;
} cmsis_nn_transpose_params;

typedef struct {
    int32_t input_offset;
    int32_t output_offset;
    int32_t ch_mult;
    cmsis_nn_tile stride;
    cmsis_nn_tile padding;
    cmsis_nn_tile dilation;
    cmsis_nn_activation activation;
} cmsis_nn_dw_conv_params;

typedef struct {
    cmsis_nn_tile stride;
    cmsis_nn_tile padding;
    cmsis_nn_activation activation;
} cmsis_nn_pool_params;

typedef struct {
    const bool adj_x;
    const bool adj_y;
    cmsis_nn_fc_params fc_params;
} cmsis_nn_bmm_params;

typedef struct {
    int32_t rank;
    int32_t input_offset;
    int32_t output_offset;
    cmsis_nn_activation input_activation;
    cmsis_nn_activation output_activation;
} cmsis_nn_svdf_params;

typedef struct {
    const int16_t *exp_lut;
    const int16_t *one_by_one_lut;
} cmsis_nn_softmax_lut_s16;

arm_cmsis_nn_status
arm_convolve_wrapper_s8(const cmsis_nn_context *ctx, const cmsis_nn_conv_params *conv_params,
                        const cmsis_nn_per_channel_quant_params *quant_params,
                        const cmsis_nn_dims *input_dims, const int8_t *input_data,
                        const cmsis_nn_dims *filter_dims, const int8_t *filter_data,
                        const cmsis_nn_dims *bias_dims, const int32_t *bias_data,
                        const cmsis_nn_dims *output_dims, int8_t *output_data);

int32_t arm_convolve_wrapper_s8_get_buffer_size(const cmsis_nn_conv_params *conv_params,
                                                const cmsis_nn_dims *input_dims,
                                                const cmsis_nn_dims *filter_dims,
                                                const cmsis_nn_dims *output_dims);

arm_cmsis_nn_status
arm_fully_connected_s8(const cmsis_nn_context *ctx, const cmsis_nn_fc_params *fc_params,
                       const cmsis_nn_per_tensor_quant_params *quant_params,
                       const cmsis_nn_dims *input_dims, const int8_t *input_data,
                       const cmsis_nn_dims *filter_dims, const int8_t *filter_data,
                       const cmsis_nn_dims *bias_dims, const int32_t *bias_data,
                       const cmsis_nn_dims *output_dims, int8_t *output_data);

int32_t arm_fully_connected_s8_get_buffer_size(const cmsis_nn_dims *filter_dims);

arm_cmsis_nn_status
arm_elementwise_mul_s8(const int8_t *input_1_vect, const int8_t *input_2_vect,
                       const int32_t input_1_offset, const int32_t input_2_offset, int8_t *output,
                       const int32_t out_offset, const int32_t out_mult, const int32_t out_shift,
                       const int32_t out_activation_min, const int32_t out_activation_max,
                       const int32_t block_size);

// What fake.c leaves out: enough to compile calls.

arm_cmsis_nn_status arm_elementwise_mul_s16(const int16_t *, const int16_t *, int32_t, int32_t,
                                            int16_t *, int32_t, int32_t, int32_t, int32_t, int32_t,
                                            int32_t);
arm_cmsis_nn_status arm_elementwise_add_s8(const int8_t *, const int8_t *, int32_t, int32_t,
                                           int32_t, int32_t, int32_t, int32_t, int32_t, int8_t *,
                                           int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
arm_cmsis_nn_status arm_elementwise_add_s16(const int16_t *, const int16_t *, int32_t, int32_t,
                                            int32_t, int32_t, int32_t, int32_t, int32_t, int16_t *,
                                            int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
arm_cmsis_nn_status arm_minimum_s8(const cmsis_nn_context *, const int8_t *, const cmsis_nn_dims *,
                                   const int8_t *, const cmsis_nn_dims *, int8_t *,
                                   const cmsis_nn_dims *);
arm_cmsis_nn_status arm_maximum_s8(const cmsis_nn_context *, const int8_t *, const cmsis_nn_dims *,
                                   const int8_t *, const cmsis_nn_dims *, int8_t *,
                                   const cmsis_nn_dims *);
void arm_concatenation_s8_z(const int8_t *, const uint16_t, const uint16_t, const uint16_t,
                            const uint16_t, int8_t *, const uint16_t, const uint32_t);

arm_cmsis_nn_status arm_transpose_s8(const int8_t *, int8_t *const, const cmsis_nn_dims *const,
                                     const cmsis_nn_dims *const,
                                     const cmsis_nn_transpose_params *const);

arm_cmsis_nn_status arm_transpose_conv_wrapper_s8(
    const cmsis_nn_context *, const cmsis_nn_context *, const cmsis_nn_transpose_conv_params *,
    const cmsis_nn_per_channel_quant_params *, const cmsis_nn_dims *, const int8_t *,
    const cmsis_nn_dims *, const int8_t *, const cmsis_nn_dims *, const int32_t *,
    const cmsis_nn_dims *, int8_t *);
int32_t arm_transpose_conv_s8_get_buffer_size(const cmsis_nn_transpose_conv_params *,
                                              const cmsis_nn_dims *, const cmsis_nn_dims *,
                                              const cmsis_nn_dims *);
int32_t arm_transpose_conv_s8_get_reverse_conv_buffer_size(const cmsis_nn_transpose_conv_params *,
                                                           const cmsis_nn_dims *,
                                                           const cmsis_nn_dims *);
arm_cmsis_nn_status arm_batch_matmul_s8(const cmsis_nn_context *, const cmsis_nn_bmm_params *,
                                        const cmsis_nn_per_tensor_quant_params *,
                                        const cmsis_nn_dims *, const int8_t *,
                                        const cmsis_nn_dims *, const int8_t *,
                                        const cmsis_nn_dims *, int8_t *);
arm_cmsis_nn_status
arm_svdf_state_s16_s8(const cmsis_nn_context *, const cmsis_nn_context *,
                      const cmsis_nn_svdf_params *, const cmsis_nn_per_tensor_quant_params *,
                      const cmsis_nn_per_tensor_quant_params *, const cmsis_nn_dims *,
                      const int8_t *, const cmsis_nn_dims *, int16_t *, const cmsis_nn_dims *,
                      const int8_t *, const cmsis_nn_dims *, const int16_t *, const cmsis_nn_dims *,
                      const int32_t *, const cmsis_nn_dims *, int8_t *);
arm_cmsis_nn_status arm_convolve_wrapper_s16(const cmsis_nn_context *, const cmsis_nn_conv_params *,
                                             const cmsis_nn_per_channel_quant_params *,
                                             const cmsis_nn_dims *, const int16_t *,
                                             const cmsis_nn_dims *, const int8_t *,
                                             const cmsis_nn_dims *, const cmsis_nn_bias_data *,
                                             const cmsis_nn_dims *, int16_t *);
int32_t arm_convolve_wrapper_s16_get_buffer_size(const cmsis_nn_conv_params *,
                                                 const cmsis_nn_dims *, const cmsis_nn_dims *,
                                                 const cmsis_nn_dims *);
arm_cmsis_nn_status arm_depthwise_conv_wrapper_s16(const cmsis_nn_context *,
                                                   const cmsis_nn_dw_conv_params *,
                                                   const cmsis_nn_per_channel_quant_params *,
                                                   const cmsis_nn_dims *, const int16_t *,
                                                   const cmsis_nn_dims *, const int8_t *,
                                                   const cmsis_nn_dims *, const int64_t *,
                                                   const cmsis_nn_dims *, int16_t *);
int32_t arm_depthwise_conv_wrapper_s16_get_buffer_size(const cmsis_nn_dw_conv_params *,
                                                       const cmsis_nn_dims *, const cmsis_nn_dims *,
                                                       const cmsis_nn_dims *);
arm_cmsis_nn_status arm_fully_connected_s16(const cmsis_nn_context *, const cmsis_nn_fc_params *,
                                            const cmsis_nn_per_tensor_quant_params *,
                                            const cmsis_nn_dims *, const int16_t *,
                                            const cmsis_nn_dims *, const int8_t *,
                                            const cmsis_nn_dims *, const int64_t *,
                                            const cmsis_nn_dims *, int16_t *);
int32_t arm_fully_connected_s16_get_buffer_size(const cmsis_nn_dims *);
arm_cmsis_nn_status arm_avgpool_s16(const cmsis_nn_context *, const cmsis_nn_pool_params *,
                                    const cmsis_nn_dims *, const int16_t *, const cmsis_nn_dims *,
                                    const cmsis_nn_dims *, int16_t *);
int32_t arm_avgpool_s16_get_buffer_size(int, int);
arm_cmsis_nn_status arm_max_pool_s16(const cmsis_nn_context *, const cmsis_nn_pool_params *,
                                     const cmsis_nn_dims *, const int16_t *, const cmsis_nn_dims *,
                                     const cmsis_nn_dims *, int16_t *);
arm_cmsis_nn_status arm_softmax_s16(const int16_t *, int32_t, int32_t, int32_t, int32_t,
                                    const cmsis_nn_softmax_lut_s16 *, int16_t *);

#endif
