# Which compiler: what the environment or -DZEPHYR_TOOLCHAIN_VARIANT names, else an installed Zephyr
# SDK, else Debian's riscv64-unknown-elf-gcc, by a wrapper: it has no library of GCC's for the names
# that Zephyr gives to instruction sets, though it has one for the same instructions.
# Twister wants a name: it gets "cross-compile", which without CROSS_COMPILE means the wrapper too.
set(utvm_variant "${ZEPHYR_TOOLCHAIN_VARIANT}$ENV{ZEPHYR_TOOLCHAIN_VARIANT}")
set(utvm_prefix "${CROSS_COMPILE}$ENV{CROSS_COMPILE}")
if((utvm_variant STREQUAL "" AND NOT DEFINED ZEPHYR_SDK_INSTALL_DIR
    AND NOT DEFINED ENV{ZEPHYR_SDK_INSTALL_DIR})
   OR (utvm_variant STREQUAL "cross-compile" AND utvm_prefix STREQUAL ""))
  set(home "$ENV{HOME}")
  file(GLOB utvm_sdk "${home}/.cmake/packages/Zephyr-sdk/*" "${home}/zephyr-sdk-*"
       "${home}/.local/zephyr-sdk-*" "${home}/.local/opt/zephyr-sdk-*" /opt/zephyr-sdk-*
       /usr/local/zephyr-sdk-*)
  if(NOT utvm_sdk OR utvm_variant STREQUAL "cross-compile")
    find_program(UTVM_RISCV_GCC riscv64-unknown-elf-gcc)
    if(NOT UTVM_RISCV_GCC)
      message(FATAL_ERROR
        "no compiler for RISC-V: install the Zephyr SDK, or gcc-riscv64-unknown-elf")
    endif()
    set(utvm_tools "${CMAKE_BINARY_DIR}/riscv-tools")
    set(utvm_text "#!/bin/sh
for argument; do
  shift
  case \"$argument\" in
  -march=*_zicsr_zifencei*)
    set -- \"$@\" \"$(echo \"$argument\" | sed s/_zicsr_zifencei//)\" -misa-spec=2.2 ;;
  *) set -- \"$@\" \"$argument\" ;;
  esac
done
exec ${UTVM_RISCV_GCC} \"$@\"
")
    if(EXISTS "${utvm_tools}/riscv-gcc")
      file(READ "${utvm_tools}/riscv-gcc" utvm_there)
    endif()
    if(NOT "${utvm_there}" STREQUAL "${utvm_text}")
      file(WRITE "${utvm_tools}/riscv-gcc" "${utvm_text}")
      file(CHMOD "${utvm_tools}/riscv-gcc" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
           GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    endif()
    foreach(utvm_tool ar nm ld objcopy objdump ranlib readelf strip gdb gcov as)
      find_program(UTVM_RISCV_${utvm_tool} riscv64-unknown-elf-${utvm_tool})
      if(UTVM_RISCV_${utvm_tool})
        file(CREATE_LINK "${UTVM_RISCV_${utvm_tool}}" "${utvm_tools}/riscv-${utvm_tool}" SYMBOLIC)
      endif()
    endforeach()
    set(ZEPHYR_TOOLCHAIN_VARIANT cross-compile)
    set(CROSS_COMPILE "${utvm_tools}/riscv-")
  endif()
endif()
