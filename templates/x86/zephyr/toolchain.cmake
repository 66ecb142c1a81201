# Which compiler: what the environment or -DZEPHYR_TOOLCHAIN_VARIANT names, else an installed Zephyr
# SDK, else this computer's own gcc, by wrappers that make it one for 32 bits.
# Twister wants a name: it gets "cross-compile", which without CROSS_COMPILE means the wrappers too.
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
    find_program(UTVM_HOST_GCC gcc)
    execute_process(COMMAND ${UTVM_HOST_GCC} -m32 -print-libgcc-file-name
      OUTPUT_VARIABLE utvm_libgcc ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT utvm_libgcc MATCHES "/32/" AND NOT utvm_libgcc MATCHES "i[3-6]86")
      message(FATAL_ERROR "no compiler for 32-bit x86: install the Zephyr SDK, or gcc-multilib")
    endif()
    set(utvm_tools "${CMAKE_BINARY_DIR}/i386-tools")
    # Zephyr asks for the folder of GCC's own limits.h by its oldest name. Its assembly says nothing
    # of the stack, of which Linux's ld warns, and twister lets no warning pass.
    set(utvm_text "#!/bin/sh
case \"$1\" in
--print-file-name=include-fixed/limits.h) exec gcc -m32 --print-file-name=include/limits.h ;;
esac
exec gcc -m32 -Wl,-z,noexecstack \"$@\"
")
    if(EXISTS "${utvm_tools}/i386-gcc")
      file(READ "${utvm_tools}/i386-gcc" utvm_there)
    endif()
    if(NOT "${utvm_there}" STREQUAL "${utvm_text}")
      file(WRITE "${utvm_tools}/i386-gcc" "${utvm_text}")
      file(CHMOD "${utvm_tools}/i386-gcc" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
           GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    endif()
    foreach(utvm_tool ar nm ld objcopy objdump ranlib readelf strip gdb gcov as)
      find_program(UTVM_HOST_${utvm_tool} ${utvm_tool})
      if(UTVM_HOST_${utvm_tool})
        file(CREATE_LINK "${UTVM_HOST_${utvm_tool}}" "${utvm_tools}/i386-${utvm_tool}" SYMBOLIC)
      endif()
    endforeach()
    set(ZEPHYR_TOOLCHAIN_VARIANT cross-compile)
    set(CROSS_COMPILE "${utvm_tools}/i386-")
  endif()
endif()
