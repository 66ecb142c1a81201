// A core with memory that answers in the next cycle, for rtl.py. Writes to SIGNAL print the number
// of the cycle, and a write behind it ends the simulation.
//
// SPDX-License-Identifier: Apache-2.0

module bench;
  localparam logic [31:0] SIGNAL = 32'h10000000;
  logic clk = 0, rst_n = 0;
  logic fetch, fetched, access, accessed, write;
  logic [31:0] pc, code, address, written, loaded;
  logic [3:0] bytes;
  logic [31:0] memory[0:262143];
  longint cycle = 0;

  always #5 clk = ~clk;
  initial begin
    $readmemh("program.hex", memory);
    #22 rst_n = 1;
  end

`ifdef CV32E40P
  cv32e40p_top core (
      .clk_i(clk), .rst_ni(rst_n), .pulp_clock_en_i(1'b1), .scan_cg_en_i(1'b0),
      .boot_addr_i(32'h80), .mtvec_addr_i(0), .dm_halt_addr_i(0), .hart_id_i(0),
      .dm_exception_addr_i(0), .irq_i(0), .debug_req_i(1'b0), .fetch_enable_i(1'b1),
`else
  ibex_top #(
      .RV32M(`MULTIPLIER), .RV32ZC(ibex_pkg::RV32Zca)
  ) core (
      .clk_i(clk), .rst_ni(rst_n), .scan_rst_ni(rst_n), .boot_addr_i(0),
      .fetch_enable_i(ibex_pkg::IbexMuBiOn), .cheriot_enable_i(ibex_pkg::IbexMuBiOff),
      .mcounteren_writable_i(ibex_pkg::IbexMuBiOff), .instr_err_i(1'b0), .data_err_i(1'b0),
`endif
      .instr_req_o(fetch), .instr_gnt_i(fetch), .instr_rvalid_i(fetched), .instr_addr_o(pc),
      .instr_rdata_i(code), .data_req_o(access), .data_gnt_i(access), .data_rvalid_i(accessed),
      .data_we_o(write), .data_be_o(bytes), .data_addr_o(address), .data_wdata_o(written),
      .data_rdata_i(loaded));

  always @(posedge clk) begin
    cycle <= cycle + 1;
    fetched <= fetch & rst_n;
    code <= memory[pc[19:2]];
    accessed <= access & rst_n;
    loaded <= memory[address[19:2]];
    if (rst_n && access && write) begin
      if (address == SIGNAL) $display("cycle %0d", cycle);
      else if (address == SIGNAL + 4) $finish;
      else
        for (int n = 0; n < 4; n++)
          if (bytes[n]) memory[address[19:2]][8*n+:8] <= written[8*n+:8];
    end
  end
endmodule
