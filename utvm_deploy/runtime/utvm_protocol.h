// The numbers on the wire; PROTOCOL.md says what they mean.
//
// Generated from utvm_deploy/device/link/messages.py, do not edit:
//     python -m utvm_deploy.device.link.messages
//
// SPDX-License-Identifier: Apache-2.0
#ifndef UTVM_PROTOCOL_H
#define UTVM_PROTOCOL_H

#define UTVM_PROTOCOL_VERSION 4
#define UTVM_REPLY_BIT 0x80u
#define UTVM_MAX_ARGUMENTS 12u
#define UTVM_MAX_FAULT_WORDS 16u
#define UTVM_MAX_IMAGE_BYTES 64u
#define UTVM_MIN_PAYLOAD_BYTES 128u
#define UTVM_CRC_BYTES 4u

enum utvm_opcode {
    // the device started; sent once, without a request
    UTVM_OPCODE_BOOT = 0,
    // asks for a session's id, which the header of the reply has; changes nothing
    UTVM_OPCODE_HELLO = 1,
    // begins the session whose id HELLO gave: who are you
    UTVM_OPCODE_OPEN = 8,
    // copy memory to the host
    UTVM_OPCODE_READ = 2,
    // copy memory to the device
    UTVM_OPCODE_WRITE = 3,
    // run a list of tasks
    UTVM_OPCODE_EXECUTE = 4,
    // CRC-32 of memory
    UTVM_OPCODE_CHECKSUM = 5,
    // what may be read, written and executed
    UTVM_OPCODE_REGIONS = 6,
    // restart the device after this reply
    UTVM_OPCODE_RESET = 7,
};

enum utvm_status {
    UTVM_STATUS_OK = 0,
    UTVM_STATUS_ACCEPTED = 1,
    UTVM_STATUS_VERSION = 2,
    UTVM_STATUS_NO_SESSION = 3,
    UTVM_STATUS_OPCODE = 4,
    UTVM_STATUS_LENGTH = 5,
    UTVM_STATUS_TOO_LARGE = 6,
    UTVM_STATUS_ADDRESS = 7,
    UTVM_STATUS_ARGUMENTS = 8,
    UTVM_STATUS_UNSUPPORTED = 9,
    UTVM_STATUS_FAULT = 10,
    UTVM_STATUS_TIMEOUT = 11,
};

enum utvm_right {
    UTVM_RIGHT_READ = 1,
    UTVM_RIGHT_WRITE = 2,
    UTVM_RIGHT_EXECUTE = 4,
};

enum utvm_tick_unit {
    UTVM_TICK_UNIT_CYCLES = 0,
    UTVM_TICK_UNIT_NANOSECONDS = 1,
    UTVM_TICK_UNIT_INSTRUCTIONS = 2,
};

enum utvm_architecture {
    UTVM_ARCHITECTURE_HOST = 0,
    UTVM_ARCHITECTURE_ARM_M = 1,
    UTVM_ARCHITECTURE_X86 = 2,
    UTVM_ARCHITECTURE_RISCV = 3,
    UTVM_ARCHITECTURE_WASM = 4,
};

/// Positions of the words in a fault record of each architecture ///

#define UTVM_FAULT_HOST_SIGNAL 0u
#define UTVM_FAULT_HOST_PC 1u
#define UTVM_FAULT_HOST_LR 2u
#define UTVM_FAULT_HOST_ADDRESS 3u
#define UTVM_FAULT_HOST_WORDS 4u

#define UTVM_FAULT_ARM_M_EXCEPTION 0u
#define UTVM_FAULT_ARM_M_PC 1u
#define UTVM_FAULT_ARM_M_LR 2u
#define UTVM_FAULT_ARM_M_SP 3u
#define UTVM_FAULT_ARM_M_XPSR 4u
#define UTVM_FAULT_ARM_M_CFSR 5u
#define UTVM_FAULT_ARM_M_HFSR 6u
#define UTVM_FAULT_ARM_M_MMFAR 7u
#define UTVM_FAULT_ARM_M_BFAR 8u
#define UTVM_FAULT_ARM_M_WORDS 9u

#define UTVM_FAULT_X86_PC 0u
#define UTVM_FAULT_X86_SP 1u
#define UTVM_FAULT_X86_WORDS 2u

#define UTVM_FAULT_RISCV_MCAUSE 0u
#define UTVM_FAULT_RISCV_PC 1u
#define UTVM_FAULT_RISCV_RA 2u
#define UTVM_FAULT_RISCV_SP 3u
#define UTVM_FAULT_RISCV_MTVAL 4u
#define UTVM_FAULT_RISCV_STACK 5u
#define UTVM_FAULT_RISCV_WORDS 6u

#define UTVM_FAULT_WASM_TRAP 0u
#define UTVM_FAULT_WASM_PC 1u
#define UTVM_FAULT_WASM_ADDRESS 2u
#define UTVM_FAULT_WASM_WORDS 3u

/// Offsets in a decoded frame ///

// PROTOCOL_VERSION of the sender (u8)
#define UTVM_HEADER_VERSION 0u
// of the message; with REPLY_BIT from the device (u8)
#define UTVM_HEADER_OPCODE 1u
// of the payload, in bytes (u16)
#define UTVM_HEADER_LENGTH 2u
// of the request; a reply repeats it; 0 if unasked (u32)
#define UTVM_HEADER_SEQUENCE 4u
// that the frame belongs to; 0 in a HELLO and a boot frame (u32)
#define UTVM_HEADER_SESSION 8u
#define UTVM_HEADER_BYTES 12u

/// Offsets in a reply's payload: what every one begins with ///

// one of Status (u16)
#define UTVM_OUTCOME_STATUS 0u
// which task of the list (u16)
#define UTVM_OUTCOME_INDEX 2u
// which address, length or number (u32)
#define UTVM_OUTCOME_DETAIL 4u
#define UTVM_OUTCOME_BYTES 8u

/// Offsets in payloads ///

#define UTVM_BOOT_REPLY_BYTES 8u

#define UTVM_HELLO_BYTES 0u

#define UTVM_HELLO_REPLY_BYTES 8u

#define UTVM_OPEN_BYTES 0u

// UTVM_VERSION, 16.16 (u32)
#define UTVM_OPEN_REPLY_RUNTIME_VERSION 8u
// longest payload of a request (u16)
#define UTVM_OPEN_REPLY_REQUEST_BYTES 12u
// longest payload of a reply, outcome included (u16)
#define UTVM_OPEN_REPLY_REPLY_BYTES 14u
// rate of the timer (u32)
#define UTVM_OPEN_REPLY_TICKS_PER_SECOND 16u
// one of TickUnit (u16)
#define UTVM_OPEN_REPLY_TICK_UNIT 20u
// how many regions REGIONS can list (u16)
#define UTVM_OPEN_REPLY_REGION_COUNT 22u
// first byte of the memory that the host may lay out (u32)
#define UTVM_OPEN_REPLY_WORKSPACE 24u
// its size (u32)
#define UTVM_OPEN_REPLY_WORKSPACE_BYTES 28u
// of the device's boot (u32)
#define UTVM_OPEN_REPLY_NONCE 32u
// then: the image's id, ASCII
#define UTVM_OPEN_REPLY_BYTES 36u

// first byte (u32)
#define UTVM_READ_ADDRESS 0u
// in bytes (u32)
#define UTVM_READ_SIZE 4u
#define UTVM_READ_BYTES 8u

// then: the bytes
#define UTVM_READ_REPLY_BYTES 8u

// first byte (u32)
#define UTVM_WRITE_ADDRESS 0u
// then: the bytes
#define UTVM_WRITE_BYTES 4u

#define UTVM_WRITE_REPLY_BYTES 8u

// then: tasks
#define UTVM_EXECUTE_BYTES 0u

// then: one u64 of ticks for every call, in order
#define UTVM_EXECUTE_REPLY_BYTES 8u

// first byte (u32)
#define UTVM_CHECKSUM_ADDRESS 0u
// in bytes (u32)
#define UTVM_CHECKSUM_SIZE 4u
// of what came before; 0 at first (u32)
#define UTVM_CHECKSUM_CRC 8u
#define UTVM_CHECKSUM_BYTES 12u

// of all so far (u32)
#define UTVM_CHECKSUM_REPLY_CRC 8u
#define UTVM_CHECKSUM_REPLY_BYTES 12u

// position of the first region wanted (u32)
#define UTVM_REGIONS_FIRST 0u
#define UTVM_REGIONS_BYTES 4u

// then: regions, as many as fit
#define UTVM_REGIONS_REPLY_BYTES 8u

#define UTVM_RESET_BYTES 0u

#define UTVM_RESET_REPLY_BYTES 8u

/// Offsets in records ///

// address; the bit that marks functions does not matter (u32)
#define UTVM_TASK_FUNCTION 0u
// how many times it is called, each timed (u16)
#define UTVM_TASK_REPEAT 4u
// how many words of arguments follow (u16)
#define UTVM_TASK_ARGC 6u
// of all its calls, in microseconds of the device; 0: none (u32)
#define UTVM_TASK_DEADLINE 8u
// then: argc words, u32 each
#define UTVM_TASK_BYTES 12u

// whose words these are: the tag of a target (u16)
#define UTVM_FAULT_ARCHITECTURE 0u
// how many words follow, at most MAX_FAULT_WORDS (u16)
#define UTVM_FAULT_COUNT 2u
// then: count words, u32 each; the target says what they mean
#define UTVM_FAULT_BYTES 4u

// first byte (u32)
#define UTVM_REGION_ADDRESS 0u
// in bytes (u32)
#define UTVM_REGION_SIZE 4u
// of Right (u32)
#define UTVM_REGION_RIGHTS 8u
#define UTVM_REGION_BYTES 12u

// PROTOCOL_VERSION of the image (u32)
#define UTVM_MAILBOX_VERSION 0u
// of the device's boot (u32)
#define UTVM_MAILBOX_NONCE 4u
// where the payload of a request is put (u32)
#define UTVM_MAILBOX_REQUEST 8u
// where the payload of its reply is found (u32)
#define UTVM_MAILBOX_REPLY 12u
// of the request; with REPLY_BIT once it is done (u32)
#define UTVM_MAILBOX_OPCODE 16u
// of the request's payload, then of the reply's, in bytes (u32)
#define UTVM_MAILBOX_LENGTH 20u
// first byte of the code written since the last request (u32)
#define UTVM_MAILBOX_CODE 24u
// its size; 0: none was written (u32)
#define UTVM_MAILBOX_CODE_BYTES 28u
#define UTVM_MAILBOX_BYTES 32u

#endif
