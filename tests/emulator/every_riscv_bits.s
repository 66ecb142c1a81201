# Every instruction of Zba and Zbb of 32 bits.
#
# SPDX-License-Identifier: Apache-2.0
start:
    sh1add a0, a1, a2
    sh1add t6, s3, t4
    sh2add a0, a1, a2
    sh2add t6, s3, t4
    sh3add a0, a1, a2
    sh3add t6, s3, t4
    andn a0, a1, a2
    andn t6, s3, t4
    orn a0, a1, a2
    orn t6, s3, t4
    xnor a0, a1, a2
    xnor t6, s3, t4
    min a0, a1, a2
    min t6, s3, t4
    minu a0, a1, a2
    minu t6, s3, t4
    max a0, a1, a2
    max t6, s3, t4
    maxu a0, a1, a2
    maxu t6, s3, t4
    rol a0, a1, a2
    rol t6, s3, t4
    ror a0, a1, a2
    ror t6, s3, t4
    clz a0, a1
    clz t6, s3
    ctz a0, a1
    ctz t6, s3
    cpop a0, a1
    cpop t6, s3
    sext.b a0, a1
    sext.b t6, s3
    sext.h a0, a1
    sext.h t6, s3
    zext.h a0, a1
    zext.h t6, s3
    orc.b a0, a1
    orc.b t6, s3
    rev8 a0, a1
    rev8 t6, s3
    rori a0, a1, 1
    rori t6, s3, 31
    rori zero, a1, 3
    max zero, a1, a2
