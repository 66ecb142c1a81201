@ One of each instruction that compiled code seldom holds, for the decoder's test.
@
@ SPDX-License-Identifier: Apache-2.0

    .syntax unified
    .thumb
    .cpu cortex-m7
    .fpu fpv5-d16
    sadd8 r1, r2, r9
    sadd16 r1, r2, r9
    sasx r1, r2, r9
    ssub8 r1, r2, r9
    ssub16 r1, r2, r9
    ssax r1, r2, r9
    qadd8 r1, r2, r9
    qadd16 r1, r2, r9
    qasx r1, r2, r9
    qsub8 r1, r2, r9
    qsub16 r1, r2, r9
    qsax r1, r2, r9
    shadd8 r1, r2, r9
    shadd16 r1, r2, r9
    shasx r1, r2, r9
    shsub8 r1, r2, r9
    shsub16 r1, r2, r9
    shsax r1, r2, r9
    uadd8 r1, r2, r9
    uadd16 r1, r2, r9
    uasx r1, r2, r9
    usub8 r1, r2, r9
    usub16 r1, r2, r9
    usax r1, r2, r9
    uqadd8 r1, r2, r9
    uqadd16 r1, r2, r9
    uqasx r1, r2, r9
    uqsub8 r1, r2, r9
    uqsub16 r1, r2, r9
    uqsax r1, r2, r9
    uhadd8 r1, r2, r9
    uhadd16 r1, r2, r9
    uhasx r1, r2, r9
    uhsub8 r1, r2, r9
    uhsub16 r1, r2, r9
    uhsax r1, r2, r9
    qadd r1, r2, r9
    qsub r1, r2, r9
    qdadd r1, r2, r9
    qdsub r1, r2, r9
    sel r1, r2, r9
    usad8 r1, r2, r9
    smuad r1, r2, r9
    smuadx r1, r2, r9
    smusd r1, r2, r9
    smusdx r1, r2, r9
    smmul r1, r2, r9
    smmulr r1, r2, r9
    smulbb r1, r2, r9
    smulbt r1, r2, r9
    smultb r1, r2, r9
    smultt r1, r2, r9
    smulwb r1, r2, r9
    smulwt r1, r2, r9
    sdiv r1, r2, r9
    udiv r1, r2, r9
    mul r1, r2, r9
    smlad r1, r2, r9, r10
    smladx r1, r2, r9, r10
    smlsd r1, r2, r9, r10
    smlsdx r1, r2, r9, r10
    smmla r1, r2, r9, r10
    smmlar r1, r2, r9, r10
    smmls r1, r2, r9, r10
    smmlsr r1, r2, r9, r10
    smlabb r1, r2, r9, r10
    smlabt r1, r2, r9, r10
    smlatb r1, r2, r9, r10
    smlatt r1, r2, r9, r10
    smlawb r1, r2, r9, r10
    smlawt r1, r2, r9, r10
    mla r1, r2, r9, r10
    mls r1, r2, r9, r10
    usada8 r1, r2, r9, r10
    smull r1, r2, r9, r10
    umull r1, r2, r9, r10
    smlal r1, r2, r9, r10
    umlal r1, r2, r9, r10
    umaal r1, r2, r9, r10
    smlalbb r1, r2, r9, r10
    smlalbt r1, r2, r9, r10
    smlaltb r1, r2, r9, r10
    smlaltt r1, r2, r9, r10
    smlald r1, r2, r9, r10
    smlaldx r1, r2, r9, r10
    smlsld r1, r2, r9, r10
    smlsldx r1, r2, r9, r10
    sxtb r1, r2
    sxtb r8, r9, ror #8
    sxth r1, r2
    sxth r8, r9, ror #8
    uxtb r1, r2
    uxtb r8, r9, ror #8
    uxth r1, r2
    uxth r8, r9, ror #8
    sxtb16 r1, r2
    sxtb16 r8, r9, ror #8
    uxtb16 r1, r2
    uxtb16 r8, r9, ror #8
    sxtab r1, r2, r9, ror #16
    sxtah r1, r2, r9, ror #16
    uxtab r1, r2, r9, ror #16
    uxtah r1, r2, r9, ror #16
    sxtab16 r1, r2, r9, ror #16
    uxtab16 r1, r2, r9, ror #16
    pkhbt r1, r2, r9, lsl #16
    pkhbt r1, r2, r9
    pkhtb r1, r2, r9, asr #16
    ssat r1, #8, r2
    ssat r1, #8, r2, asr #3
    usat r1, #8, r2, lsl #3
    ssat16 r1, #8, r2
    usat16 r1, #8, r2
    clz r1, r2
    rbit r1, r2
    rev r1, r9
    rev16 r1, r2
    revsh r1, r2
    bfi r1, r2, #3, #4
    bfc r1, #3, #4
    sbfx r1, r2, #3, #4
    ubfx r1, r2, #3, #4
    ldrd r1, r2, [r3, #8]
    ldrd r1, r2, [r3], #8
    strd r1, r2, [r3, #-8]!
    ldr r1, [r2], #4
    ldr r1, [r2, #4]!
    ldr r1, [r2, #-4]
    ldr.w r1, [r2, r9, lsl #2]
    str r1, [r2], #4
    strb r1, [r2, #1]!
    ldrsh r1, [r2], #2
    ldrsb r1, [r2, r3]
    ldrex r1, [r2, #4]
    strex r1, r2, [r3, #4]
    ldrexb r1, [r2]
    strexh r1, r2, [r3]
    clrex
    pld [r1, #32]
    pld [r1, r2]
    ldmdb r1!, {r2-r5}
    stmdb r1, {r2, r9}
    ldm r1!, {r2-r5, r9}
    stm r1!, {r2-r5}
    dmb
    dsb
    isb
    mrs r1, primask
    msr primask, r1
    cpsid i
    cpsie f
    movt r1, #4
    movw r1, #4
    adc.w r1, r2, r3, lsl #4
    rrx r1, r2
    ror.w r1, r2, r3
    tst.w r1, r2, lsl #3
    teq r1, r2
    cmn r1, #3
    orn r1, r2, r3
    dbg #13
    nop.w
    wfi
    sev
    bkpt 0xab
    svc 0
    vmov s1, r2
    vmov r2, s1
    vmov r1, r2, d3
    vmov d3, r1, r2
    vmov r1, r2, s4, s5
    vmov s4, s5, r1, r2
    vmrs APSR_nzcv, fpscr
    vmrs r1, fpscr
    vmsr fpscr, r1
    vldm r1!, {s4-s8}
    vstm r1, {d2-d4}
    vfma.f32 s1, s2, s3
    vfnma.f32 s1, s2, s3
    vmla.f32 s1, s2, s3
    vnmla.f32 s1, s2, s3
    vcvt.s32.f32 s1, s2
    vcvt.f32.u32 s1, s2
    vcvt.f64.f32 d1, s3
    vcvt.f32.f64 s1, d3
    vcvt.f64.s32 d2, s9
    vcvt.s32.f64 s1, d2
    vcvtr.s32.f32 s1, s2
    vcvt.f32.s32 s1, s1, #3
    vcvtb.f32.f16 s1, s2
    vsqrt.f32 s1, s2
    vabs.f64 d1, d2
    vrinta.f32 s1, s2
    vcvtm.s32.f64 s3, d4
    vmaxnm.f32 s1, s2, s3
    vseleq.f64 d1, d2, d3
    vcmp.f32 s1, #0
    vmov.32 r1, d2[1]
    vmov.32 d2[0], r1
