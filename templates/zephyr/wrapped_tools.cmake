# Which compiler: what the environment or -DZEPHYR_TOOLCHAIN_VARIANT names, else an installed Zephyr
# SDK, else the compiler above, by wrappers that make it the one that Zephyr wants.
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
    if(utvm_missing)
      message(FATAL_ERROR "${utvm_missing}")
    endif()
    set(utvm_tools "${CMAKE_BINARY_DIR}/${utvm_architecture}-tools")
    set(utvm_wrapper "${utvm_tools}/${utvm_architecture}-gcc")
    if(EXISTS "${utvm_wrapper}")
      file(READ "${utvm_wrapper}" utvm_there)
    endif()
    if(NOT "${utvm_there}" STREQUAL "${utvm_text}")
      file(WRITE "${utvm_wrapper}" "${utvm_text}")
      file(CHMOD "${utvm_wrapper}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
           GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    endif()
    foreach(utvm_tool ar nm ld objcopy objdump ranlib readelf strip gdb gcov as)
      find_program(UTVM_TOOL_${utvm_tool} ${utvm_own_prefix}${utvm_tool})
      if(UTVM_TOOL_${utvm_tool})
        file(CREATE_LINK "${UTVM_TOOL_${utvm_tool}}"
             "${utvm_tools}/${utvm_architecture}-${utvm_tool}" SYMBOLIC)
      endif()
    endforeach()
    set(ZEPHYR_TOOLCHAIN_VARIANT cross-compile)
    set(CROSS_COMPILE "${utvm_tools}/${utvm_architecture}-")
  endif()
endif()
