// States, sessions, dispatch.
//
//                  request              made                out
//     RECEIVE ──────────────▶ (handle) ─────▶ SEND ───────────────▶ RECEIVE
//                                │              │  ▲
//                       CHECKSUM ◀              ▼  │ tasks done
//                     (then SEND)              RUN ┘      RESET ─▶ RECEIVE
//
// Nothing is received while a reply is made or sent: rx_buffer holds the
// request until then.
//
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "utvm_private.h"

// chunk_at and chunk_length are bytes
#if UTVM_CHUNK_BYTES < 1 || UTVM_CHUNK_BYTES > 255
#error "UTVM_CHUNK_BYTES must be 1 to 255"
#endif
#if UTVM_CRC_BYTES_PER_POLL < 1
#error "UTVM_CRC_BYTES_PER_POLL must be positive"
#endif

// A check at compile time: an array cannot have -1 elements.
#define CHECK(name, condition) typedef char utvm_check_##name[(condition) ? 1 : -1]

// the smallest payload holds the longest reply to OPEN, and a task with all arguments
CHECK(open, UTVM_MIN_PAYLOAD_BYTES >= UTVM_OPEN_REPLY_BYTES + UTVM_MAX_IMAGE_BYTES);
CHECK(task, UTVM_MIN_PAYLOAD_BYTES >= UTVM_TASK_BYTES + 4 * UTVM_MAX_ARGUMENTS);
// decoded frames count by bytes: a header of another size would be another protocol
CHECK(header, UTVM_HEADER_BYTES == 12 && UTVM_OUTCOME_BYTES == 8);

static int refuse_config(utvm_t *utvm, const char *why) {
    (void)why;
    UTVM_ERROR(utvm, why);
    return UTVM_ERR_CONFIG;
}

int utvm_init(utvm_t *utvm, const struct utvm_config *config, uint32_t nonce) {
    memset(utvm, 0, sizeof *utvm);
    utvm->config = config;
    utvm->nonce = nonce ? nonce : 1;

    if (!config->read || !config->write || !config->ticks) {
        return refuse_config(utvm, "read, write and ticks must be given");
    }
    if (!config->rx_buffer || config->rx_size < UTVM_RX_BYTES(UTVM_MIN_PAYLOAD_BYTES)) {
        return refuse_config(utvm, "rx_buffer is too small");
    }
    if (!config->tx_buffer || config->tx_size < UTVM_TX_BYTES(UTVM_MIN_PAYLOAD_BYTES)) {
        return refuse_config(utvm, "tx_buffer is too small");
    }
    if (config->region_count > 0xffff || (config->region_count && !config->regions)) {
        return refuse_config(utvm, "regions are missing, or over 65535");
    }

    // a zero, COBS's first code, and one code per 254 bytes, rounded up
    utvm->tx_gap = 2 + (config->tx_size >> 7);
    utvm_outcome(utvm, UTVM_STATUS_OK, 0, 0);
    // opcode, number and session of the boot frame
    memset(config->rx_buffer, 0, UTVM_HEADER_BYTES);
    utvm_frame_send(utvm);
    return UTVM_OK;
}

void utvm_put_outcome(uint8_t *at, uint32_t status, uint32_t index, uint32_t detail) {
    utvm_put16(at + UTVM_OUTCOME_STATUS, status);
    utvm_put16(at + UTVM_OUTCOME_INDEX, index);
    utvm_put32(at + UTVM_OUTCOME_DETAIL, detail);
}

void utvm_outcome(utvm_t *utvm, uint32_t status, uint32_t index, uint32_t detail) {
    utvm_put_outcome(utvm_reply(utvm), status, index, detail);
    utvm->reply_length = UTVM_OUTCOME_BYTES;
}

/// Requests ///

// The request in rx_buffer.
static struct utvm_request request_of(const utvm_t *utvm) {
    struct utvm_request request = {
        utvm->config->rx_buffer + UTVM_HEADER_BYTES,
        utvm->rx_length - UTVM_HEADER_BYTES - UTVM_CRC_BYTES,
    };
    return request;
}

static void on_open(utvm_t *utvm, struct utvm_request request) {
    if (request.length != UTVM_OPEN_BYTES) {
        utvm_outcome(utvm, UTVM_STATUS_LENGTH, 0, request.length);
        return;
    }
    const struct utvm_config *config = utvm->config;
    uint8_t *reply = utvm_reply(utvm);
    uint32_t workspace = (uint32_t)(uintptr_t)config->workspace;
    uint32_t workspace_end = (uint32_t)(uintptr_t)config->workspace_end;
    utvm_outcome(utvm, UTVM_STATUS_OK, 0, 0);
    utvm_put32(reply + UTVM_OPEN_REPLY_RUNTIME_VERSION, UTVM_VERSION);
    utvm_put16(reply + UTVM_OPEN_REPLY_REQUEST_BYTES, utvm_request_max(utvm));
    utvm_put16(reply + UTVM_OPEN_REPLY_REPLY_BYTES, utvm_reply_max(utvm));
    utvm_put32(reply + UTVM_OPEN_REPLY_TICKS_PER_SECOND, config->ticks_per_second);
    utvm_put16(reply + UTVM_OPEN_REPLY_TICK_UNIT, config->tick_unit);
    utvm_put16(reply + UTVM_OPEN_REPLY_REGION_COUNT, config->region_count);
    utvm_put32(reply + UTVM_OPEN_REPLY_WORKSPACE, workspace);
    utvm_put32(reply + UTVM_OPEN_REPLY_WORKSPACE_BYTES, workspace_end - workspace);
    utvm_put32(reply + UTVM_OPEN_REPLY_NONCE, utvm->nonce);
    utvm->reply_length = UTVM_OPEN_REPLY_BYTES;
    const char *image = config->image;
    for (uint32_t i = 0; image && image[i] && i < UTVM_MAX_IMAGE_BYTES; i++) {
        reply[utvm->reply_length++] = (uint8_t)image[i];
    }
}

// Do what an opcode asks. The reply is made when the state is SEND or still
// RECEIVE on return.
static void dispatch(utvm_t *utvm, uint32_t opcode) {
    struct utvm_request request = request_of(utvm);
    switch (opcode) {
    case UTVM_OPCODE_OPEN:
        on_open(utvm, request);
        return;
    case UTVM_OPCODE_READ:
        utvm_on_read(utvm, request);
        return;
    case UTVM_OPCODE_WRITE:
        utvm_on_write(utvm, request);
        return;
    case UTVM_OPCODE_EXECUTE:
        utvm_on_execute(utvm, request);
        return;
    case UTVM_OPCODE_CHECKSUM:
        utvm_on_checksum(utvm, request);
        return;
    case UTVM_OPCODE_REGIONS:
        utvm_on_regions(utvm, request);
        return;
    case UTVM_OPCODE_RESET:
        if (utvm->config->reset) {
            utvm_outcome(utvm, UTVM_STATUS_OK, 0, 0);
            utvm->state_after_send = UTVM_STATE_RESET;
        } else {
            utvm_outcome(utvm, UTVM_STATUS_UNSUPPORTED, 0, opcode);
        }
        return;
    default:
        utvm_outcome(utvm, UTVM_STATUS_OPCODE, 0, opcode);
        return;
    }
}

// The id that a session gets if OPEN begins it now and HELLO had this number.
//
// It differs with the number, which is random, and with each session that
// began, so that an OPEN recorded earlier in this boot never fits.
static uint32_t session_id(const utvm_t *utvm, uint32_t hello) {
    uint8_t number[4];
    utvm_put32(number, hello);
    uint32_t id = utvm_crc32(utvm->nonce + utvm->openings * 0x85EBCA6Bu, number, sizeof number);
    return id ? id : 1;
}

static void handle(utvm_t *utvm) {
    uint8_t *frame = utvm->config->rx_buffer;
    struct utvm_request request = request_of(utvm);
    uint32_t opcode = frame[UTVM_HEADER_OPCODE];
    uint32_t sequence = utvm_get32(frame + UTVM_HEADER_SEQUENCE);
    uint32_t session = utvm_get32(frame + UTVM_HEADER_SESSION);
    utvm->state_after_send = UTVM_STATE_RECEIVE;

    // Our own reply, from a line that echoes?
    if (opcode & UTVM_REPLY_BIT) {
        utvm->rx_length = 0;
        return;
    }
    if (frame[UTVM_HEADER_VERSION] != UTVM_PROTOCOL_VERSION) {
        utvm_frame_send_aside(utvm, UTVM_STATUS_VERSION, UTVM_PROTOCOL_VERSION);
        return;
    }
    // It changes nothing, so that an old one may come at any time.
    if (opcode == UTVM_OPCODE_HELLO) {
        utvm_put32(frame + UTVM_HEADER_SESSION, session_id(utvm, sequence));
        utvm_frame_send_aside(utvm, UTVM_STATUS_OK, 0);
        return;
    }
    if (opcode == UTVM_OPCODE_OPEN && session == session_id(utvm, sequence - 1)) {
        utvm->session = session;
        utvm->sequence = sequence - 1;
        utvm->openings++;
    }
    if (!utvm->session || session != utvm->session) {
        utvm_frame_send_aside(utvm, UTVM_STATUS_NO_SESSION, utvm->nonce);
        return;
    }

    // Only what is younger than the last request is done; an equal number with
    // other content, or an older one, is a straggler that nobody waits for.
    uint32_t crc = utvm_get32(request.payload + request.length);
    uint32_t age = sequence - utvm->sequence;
    if (age == 0 && crc == utvm->request_crc) {
        utvm_send(utvm, utvm->config->tx_buffer, utvm->kept_length);
        return;
    }
    if (age == 0 || age >> 31) {
        utvm->rx_length = 0;
        return;
    }
    utvm->sequence = sequence;
    utvm->request_crc = crc;
    dispatch(utvm, opcode);
    // otherwise a later poll makes the reply
    if (utvm->state == UTVM_STATE_RECEIVE) {
        utvm_frame_send(utvm);
    }
}

/// Polls ///

static int receive(utvm_t *utvm) {
    const struct utvm_config *config = utvm->config;
    if (utvm->chunk_at == utvm->chunk_length) {
        int32_t got = config->read(config->context, utvm->chunk, sizeof utvm->chunk);
        if (got <= 0) {
            return got;
        }
        utvm->chunk_at = 0;
        utvm->chunk_length = (uint8_t)got;
    }
    while (utvm->chunk_at < utvm->chunk_length) {
        if (utvm_frame_decode(utvm, utvm->chunk[utvm->chunk_at++])) {
            handle(utvm);
            return 1;
        }
    }
    return 1;
}

static int send(utvm_t *utvm) {
    const struct utvm_config *config = utvm->config;
    int32_t put =
        config->write(config->context, utvm->tx + utvm->tx_sent, utvm->tx_length - utvm->tx_sent);
    if (put <= 0) {
        return put;
    }
    utvm->tx_sent += (uint32_t)put;
    if (utvm->tx_sent == utvm->tx_length) {
        utvm->state = utvm->state_after_send;
        // the request is done with, unless it is a list of tasks that runs now
        if (utvm->state == UTVM_STATE_RECEIVE) {
            utvm->rx_length = 0;
        }
    }
    return 1;
}

int utvm_poll(utvm_t *utvm) {
    UTVM_ASSERT(utvm->rx_length <= utvm->config->rx_size);
    UTVM_ASSERT(utvm->tx_sent <= utvm->tx_length && utvm->tx_length <= utvm->config->tx_size);
    UTVM_ASSERT(utvm->chunk_at <= utvm->chunk_length && utvm->chunk_length <= UTVM_CHUNK_BYTES);
    UTVM_ASSERT(utvm->nonce != 0);
    switch (utvm->state) {
    case UTVM_STATE_SEND:
        return send(utvm);
    case UTVM_STATE_RUN:
        if (utvm_execute_step(utvm, request_of(utvm))) {
            utvm->state_after_send = UTVM_STATE_RECEIVE;
            utvm_frame_send(utvm);
        }
        return 1;
    case UTVM_STATE_CHECKSUM:
        if (utvm_checksum_step(utvm)) {
            utvm_frame_send(utvm);
        }
        return 1;
    case UTVM_STATE_RESET:
        // before the call, which may begin anew
        utvm->state = UTVM_STATE_RECEIVE;
        utvm->rx_length = 0;
        utvm->config->reset(utvm->config->context);
        return 1;
    default:
        return receive(utvm);
    }
}

/// Mailbox ///

void utvm_open_mailbox(utvm_t *utvm, uint8_t *mailbox) {
    memset(mailbox, 0, UTVM_MAILBOX_BYTES);
    utvm_put32(mailbox + UTVM_MAILBOX_VERSION, UTVM_PROTOCOL_VERSION);
    utvm_put32(mailbox + UTVM_MAILBOX_NONCE, utvm->nonce);
    utvm_put32(mailbox + UTVM_MAILBOX_REQUEST,
               (uint32_t)(uintptr_t)(utvm->config->rx_buffer + UTVM_HEADER_BYTES));
    utvm_put32(mailbox + UTVM_MAILBOX_REPLY, (uint32_t)(uintptr_t)utvm_reply(utvm));
}

void utvm_serve_mailbox(utvm_t *utvm, uint8_t *mailbox) {
    const struct utvm_config *config = utvm->config;
    uint32_t opcode = utvm_get32(mailbox + UTVM_MAILBOX_OPCODE);
    uint32_t length = utvm_get32(mailbox + UTVM_MAILBOX_LENGTH);
    uint32_t code_bytes = utvm_get32(mailbox + UTVM_MAILBOX_CODE_BYTES);
    if (code_bytes && config->code_written) {
        uintptr_t code = utvm_get32(mailbox + UTVM_MAILBOX_CODE);
        config->code_written(config->context, (const void *)code, code_bytes);
    }
    utvm->state = UTVM_STATE_RECEIVE;
    utvm->state_after_send = UTVM_STATE_RECEIVE;
    if (length > utvm_request_max(utvm)) {
        utvm_outcome(utvm, UTVM_STATUS_LENGTH, 0, length);
    } else {
        // as if the frame around the payload had come
        utvm->rx_length = UTVM_HEADER_BYTES + length + UTVM_CRC_BYTES;
        dispatch(utvm, opcode);
        struct utvm_request request = request_of(utvm);
        if (utvm->state == UTVM_STATE_CHECKSUM) {
            while (!utvm_checksum_step(utvm)) {
            }
        }
        if (utvm->state_after_send == UTVM_STATE_RUN) {
            while (!utvm_execute_step(utvm, request)) {
            }
        }
    }
    utvm->state = UTVM_STATE_RECEIVE;
    utvm->rx_length = 0;
    utvm_put32(mailbox + UTVM_MAILBOX_LENGTH, utvm->reply_length);
    utvm_put32(mailbox + UTVM_MAILBOX_OPCODE, opcode | UTVM_REPLY_BIT);
}
