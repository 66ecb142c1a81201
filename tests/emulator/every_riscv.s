# Every instruction of RV32IMC that assemblers may compress, and the others once.
#
# SPDX-License-Identifier: Apache-2.0
start:
    addi sp, sp, -64
    addi s0, sp, 16
    addi a5, a5, -3
    addi a5, a4, 5
    addi zero, zero, 0
    li t0, -7
    lui t1, 0x1f
    lui t1, 0xfffff
    auipc t1, 0x12
    mv a0, s11
    add s2, s2, s3
    add t6, s3, s4
    sub s0, s0, s1
    xor a0, a0, a1
    or a2, a2, a3
    and a4, a4, a5
    andi a4, a4, -3
    srli a4, a4, 31
    srai a4, a4, 3
    slli s5, s5, 12
    slli a1, a2, 1
    slt a0, a1, a2
    sltu a0, a1, a2
    slti a0, a1, -1
    sltiu a0, a1, 1
    xori a0, a1, -1
    ori a0, a1, 1
    sll a0, a1, a2
    srl a0, a1, a2
    sra a0, a1, a2
    mul a0, a1, a2
    mulh a0, a1, a2
    mulhsu a0, a1, a2
    mulhu a0, a1, a2
    div a0, a1, a2
    divu a0, a1, a2
    rem a0, a1, a2
    remu s10, a1, a2
    lw a0, 68(a5)
    lw s7, 132(sp)
    lw s7, 6(s8)
    lb a0, 1(a1)
    lh a0, 2(a1)
    lbu a0, 1(a1)
    lhu a0, 2(a1)
    sw a0, 124(a5)
    sw s7, 252(sp)
    sb a0, 1(a1)
    sh s9, 2(s11)
    beqz a5, start
    bnez a5, end
    beq a1, s2, start
    bne a1, a2, end
    blt a1, a2, end
    bge a1, a2, end
    bltu a1, a2, end
    bgeu a1, a2, start
    j end
    j start
    jal end
    jal t0, end
    jr a5
    ret
    jalr a5
    jalr t2, 4(s9)
    fence
    ecall
    ebreak
    csrrw a0, mscratch, a1
    csrrs s3, mcycle, zero
    csrrci a0, mstatus, 8
    fence.i
    mret
    wfi
end:
    nop
