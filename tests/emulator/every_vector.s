// Instructions of Armv8.1-M, each encoding group at least once.
.syntax unified
.thumb
vldrb.8 q0, [r1]
vldrb.8 q3, [r9, #16]
vldrh.16 q1, [r2, #-32]!
vldrw.32 q7, [r8], #64
vldrb.s16 q2, [r3, #8]
vldrb.u32 q2, [r3], #4
vldrh.s32 q4, [r7, #2]!
vstrb.8 q0, [r10]
vstrh.16 q5, [r4], #16
vstrw.32 q6, [r5, #-16]!
vstrb.16 q1, [r6, #3]
vstrh.32 q1, [r6], #2
vldrb.u8 q0, [r1, q2]
vldrb.s32 q3, [r11, q7]
vldrh.u16 q0, [r1, q2, uxtw #1]
vldrw.u32 q0, [r1, q2, uxtw #2]
vldrd.u64 q0, [r1, q2]
vldrw.u32 q0, [q1, #4]
vldrw.u32 q5, [q6, #-8]!
vldrd.u64 q5, [q6, #8]
vstrb.8 q0, [r1, q2]
vstrh.16 q3, [r12, q4]
vstrw.32 q3, [r12, q4, uxtw #2]
vstrw.32 q0, [q1, #4]
vstrd.64 q0, [q1, #8]!
vld20.8 {q0, q1}, [r0]
vld21.8 {q0, q1}, [r0]!
vld40.16 {q2, q3, q4, q5}, [r9]
vld43.32 {q4, q5, q6, q7}, [r9]!
vst20.8 {q6, q7}, [r0]
vst41.8 {q0, q1, q2, q3}, [r7]!
vmov q0[2], q0[0], r3, r4
vmov r3, r9, q5[3], q5[1]
vmov.8 q1[3], r4
vmov.16 q7[5], r10
vmov.s8 r4, q1[11]
vmov.u16 r4, q1[7]
vdup.8 q0, r1
vdup.16 q5, r2
vdup.32 q7, r12
vand q0, q1, q2
vbic q0, q1, q2
vorr q7, q6, q5
vorn q0, q1, q2
veor q0, q1, q2
vmov q3, q4
vadd.i8 q0, q1, q2
vadd.i32 q0, q1, r2
vsub.i16 q3, q4, q5
vsub.i8 q3, q4, r9
vmul.i16 q0, q1, q2
vmul.i32 q0, q1, r10
vmulh.s8 q0, q1, q2
vrmulh.u32 q0, q1, q2
vmullb.s8 q0, q1, q2
vmullt.u16 q0, q1, q2
vmullb.p8 q0, q1, q2
vmax.s8 q0, q1, q2
vmin.u32 q0, q1, q2
vmaxa.s8 q0, q2
vmina.s16 q5, q2
vabd.s8 q0, q1, q2
vhadd.s8 q0, q1, q2
vhadd.u8 q0, q1, r2
vrhadd.s8 q0, q1, q2
vhsub.s16 q0, q1, r3
vhsub.s16 q0, q1, q3
vqadd.s8 q0, q1, q2
vqadd.u16 q0, q1, r2
vqsub.s8 q0, q1, q2
vqsub.s32 q0, q1, r2
vqdmulh.s32 q0, q1, q2
vqrdmulh.s32 q0, q1, q2
vqdmulh.s16 q0, q1, r2
vqrdmulh.s32 q0, q1, r2
vqdmullb.s16 q0, q1, q2
vqdmullt.s32 q0, q1, q2
vqdmullb.s16 q0, q1, r4
vqdmullt.s32 q0, q1, r4
vqdmladh.s8 q0, q1, q2
vqrdmlsdhx.s16 q0, q1, q2
vqdmlah.s8 q0, q1, r2
vqrdmlash.s16 q0, q1, r2
vmla.s8 q0, q1, r2
vmlas.s32 q0, q1, r2
vcadd.i8 q0, q1, q2, #90
vhcadd.s8 q0, q1, q2, #270
vadc.i32 q0, q1, q2
vadci.i32 q0, q1, q2
vsbc.i32 q0, q1, q2
vcls.s8 q0, q1
vclz.i16 q0, q1
vrev16.8 q0, q1
vrev32.8 q0, q1
vrev64.16 q0, q1
vmvn q0, q1
vabs.s8 q0, q1
vneg.s32 q0, q1
vqabs.s8 q0, q1
vqneg.s16 q0, q1
vshl.s32 q0, q1, q2
vshl.s32 q0, r2
vrshl.s32 q0, q1, q2
vrshl.s32 q0, r2
vqshl.u8 q0, q1, q2
vqshl.s16 q0, r2
vqrshl.s32 q0, q1, q2
vqrshl.u32 q0, r3
vshl.i32 q0, q1, #4
vqshl.s8 q0, q1, #2
vqshlu.s8 q0, q1, #2
vshr.s32 q0, q1, #4
vrshr.u8 q0, q1, #4
vsri.32 q0, q1, #4
vsli.16 q0, q1, #4
vshllb.s8 q0, q1, #2
vshllt.u16 q0, q1, #16
vmovlb.s8 q0, q1
vmovlt.u16 q0, q1
vmovnb.i16 q0, q1
vmovnt.i32 q0, q1
vqmovnb.s16 q0, q1
vqmovunt.s32 q0, q1
vshrnb.i16 q0, q1, #3
vrshrnt.i32 q0, q1, #3
vqshrnb.s16 q0, q1, #3
vqrshrnt.s32 q0, q1, #3
vqshrunb.s16 q0, q1, #3
vqrshrunt.s32 q0, q1, #3
vshlc q0, r3, #7
vmaxv.s8 r3, q1
vminv.u16 r4, q1
vmaxv.s32 r4, q1
vmaxav.s8 r3, q1
vabav.s8 r10, q0, q1
vaddv.s8 r4, q1
vaddva.u16 r4, q1
vaddlv.s32 r4, r5, q1
vaddlva.u32 r4, r5, q1
vmladav.s8 r2, q0, q1
vmladava.s8 r2, q3, q5
vmladavx.s16 r2, q3, q5
vmladava.u8 r12, q3, q5
vmladav.s32 r2, q3, q5
vmlsdava.s16 r2, q3, q5
vmlaldav.s16 r2, r3, q3, q5
vmlaldava.s32 r4, r7, q3, q5
vmlsldav.s16 r2, r3, q3, q5
vrmlaldavh.s32 r2, r3, q3, q5
vrmlaldavha.s32 r2, r3, q3, q5
vrmlsldavh.s32 r2, r3, q3, q5
vidup.u8 q0, r2, #1
vddup.u32 q5, r4, #4
viwdup.u8 q0, r2, r3, #1
vdwdup.u16 q0, r2, r7, #2
vbrsr.8 q0, q1, r3
vcmp.i8 eq, q0, q1
vcmp.s8 gt, q0, r3
vcmp.u16 cs, q0, q1
vcmp.f32 ge, q0, q1
vcmp.f16 lt, q0, r1
vpsel q0, q1, q2
vpnot
vctp.8 r3
vctp.32 r12
vmov.i32 q0, #1
vmov.i8 q3, #3
vmov.f32 q0, #1.0
vmov.i64 q0, #0xff
vmvn.i32 q0, #1
vorr.i32 q0, #1
vbic.i16 q0, #1
vadd.f32 q0, q1, q2
vsub.f16 q0, q1, q2
vadd.f32 q0, q1, r2
vsub.f16 q0, q1, r2
vmul.f32 q0, q1, q2
vmul.f16 q0, q1, r2
vfma.f32 q0, q1, q2
vfms.f16 q0, q1, q2
vfma.f32 q0, q1, r2
vfmas.f16 q0, q1, r2
vcmul.f32 q0, q1, q2, #90
vcmla.f32 q0, q1, q2, #180
vcadd.f32 q0, q1, q2, #90
vabd.f32 q0, q1, q2
vabs.f32 q0, q1
vneg.f16 q0, q1
vmaxnm.f32 q0, q1, q2
vminnm.f16 q0, q1, q2
vmaxnma.f32 q0, q1
vmaxnmv.f32 r1, q1
vrintz.f32 q0, q1
vrintn.f16 q0, q1
vcvt.f32.s32 q0, q1
vcvt.s32.f32 q0, q1
vcvtn.s32.f32 q0, q1
vcvta.u16.f16 q0, q1
vcvt.f32.s32 q0, q1, #4
vcvtb.f16.f32 q0, q0
vcvtt.f32.f16 q0, q0
asrl r2, r3, #4
lsll r2, r3, r4
lsrl r6, r11, #2
sqrshrl r2, r3, #48, r4
uqshll r2, r3, #4
sqshl r9, #4
urshr r3, #2
sqrshr r3, r9
uqrshl r3, r9
csel r0, r1, r2, eq
csinc r9, r10, r11, ne
csinv r0, r1, r2, lt
cset r3, gt
1:
wls lr, r3, 2f
wlstp.8 lr, r9, 2f
nop
2:
dls lr, r4
dlstp.16 lr, r4
vadd.i8 q0, q1, q2
le lr, 1b
letp lr, 1b
le 1b
vpste
vaddt.i8 q0, q1, q2
vadde.i8 q1, q3, q2
vadd.i8 q4, q3, q2
vpttt.i8 eq, q0, q1
vsubt.i8 q5, q3, r2
vsubt.i8 q6, q3, q2
vsubt.i8 q7, q3, q2
vsub.i8 q1, q3, q2
vadd.f16 s0, s1, s2
vfma.f16 s0, s1, s2
vldr.16 s0, [r1]
