# Debian's riscv64-unknown-elf-gcc has no library of GCC's for the names that Zephyr gives to
# instruction sets, though it has one for the same instructions.
set(utvm_architecture riscv)
set(utvm_own_prefix riscv64-unknown-elf-)
find_program(UTVM_OWN_GCC riscv64-unknown-elf-gcc)
if(NOT UTVM_OWN_GCC)
  set(utvm_missing "no compiler for RISC-V: install the Zephyr SDK, or gcc-riscv64-unknown-elf")
endif()
set(utvm_text "#!/bin/sh
for argument; do
  shift
  case \"$argument\" in
  -march=*_zicsr_zifencei*)
    set -- \"$@\" \"$(echo \"$argument\" | sed s/_zicsr_zifencei//)\" -misa-spec=2.2 ;;
  *) set -- \"$@\" \"$argument\" ;;
  esac
done
exec ${UTVM_OWN_GCC} \"$@\"
")
@WRAPPED_TOOLS@
