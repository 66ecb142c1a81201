// products of two pixels and three channels
vldrb.8 q0, [r7], #16
vldrb.8 q1, [r1], #16
vmladava.s8 r0, q0, q1
vldrb.8 q2, [r3], #16
vmladava.s8 r4, q0, q2
vldrb.8 q3, [r5], #16
vmladava.s8 r8, q0, q3
vldrb.8 q0, [r7], #16
vmladava.s8 r2, q0, q1
vmladava.s8 r6, q0, q2
vmladava.s8 r10, q0, q3
// products of one pixel and four channels
vldrb.8 q0, [r1], #16
vldrb.8 q1, [r7], #16
vmladava.s8 r0, q0, q1
vldrb.8 q2, [r7], #16
vmladava.s8 r2, q0, q2
vldrb.8 q1, [r3], #16
vmladava.s8 r4, q0, q1
vldrb.8 q2, [r3], #16
vmladava.s8 r6, q0, q2
// a copy
vldrb.8 q0, [r0], #16
vstrb.8 q0, [r1], #16
// two taps of a depthwise convolution
ldrd r3, r4, [r2]
vldrb.s16 q0, [r1], #8
add r3, r0
vldrb.s16 q1, [r3]
add r3, r5
vldrb.s16 q2, [r3]
add r4, r0
vmul.i16 q1, q1, q0
vldrb.s16 q3, [r4]
vmul.i16 q2, q2, q0
vldrb.s16 q0, [r1], #8
vmul.i16 q3, q3, q0
add r4, r5
vadd.i16 q1, q1, q3
vldrb.s16 q3, [r4]
vmul.i16 q3, q3, q0
vmovlb.s16 q0, q1
vadd.i16 q2, q2, q3
vadd.i32 q4, q4, q0
vmovlb.s16 q0, q2
vmovlt.s16 q1, q1
vmovlt.s16 q2, q2
vadd.i32 q5, q5, q1
vadd.i32 q6, q6, q0
vadd.i32 q7, q7, q2
// one tap of a depthwise convolution
ldr r3, [r2]
vldrb.s16 q0, [r1], #8
add r3, r0
vldrb.s16 q1, [r3]
add r3, r5
vmul.i16 q1, q1, q0
vldrb.s16 q2, [r3]
vmul.i16 q2, q2, q0
vmovlb.s16 q0, q1
vmovlt.s16 q1, q1
vadd.i32 q4, q4, q0
vmovlb.s16 q0, q2
vadd.i32 q5, q5, q1
vmovlt.s16 q2, q2
vadd.i32 q6, q6, q0
vadd.i32 q7, q7, q2
// an average
vldrb.s16 q2, [r7]
vadd.i16 q0, q0, q2
vldrb.s16 q3, [r7, #8]
add r7, r5
vadd.i16 q1, q1, q3
// an average of the last lanes
vpst
vldrbt.s16 q2, [r7]
add r7, r5
vadd.i16 q0, q0, q2
