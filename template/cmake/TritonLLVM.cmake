# Owned by the project template; changed only by `copier update`.
#
# The installed Triton and its LLVM, as tools/toolchain.py finds or fetches them.

set(TRITON_LLVM_DIR "" CACHE PATH "LLVM to build with; found or fetched if empty")
set(TRITON_LLVM_MATCH "$ENV{TRITON_LLVM_MATCH}" CACHE STRING "exact (the default) or nearest")

execute_process(
  COMMAND
    ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/toolchain.py fetch --json --llvm-dir=${TRITON_LLVM_DIR}
    --match=${TRITON_LLVM_MATCH}
  OUTPUT_VARIABLE TRITON_TOOLCHAIN
  RESULT_VARIABLE _failed
)
if(_failed)
  message(FATAL_ERROR "No toolchain for this plugin; the reason stands above.")
endif()
foreach(
  _key
  VERSION
  INCLUDE_DIR
  LIBRARY
  LLVM_COMMIT
  LLVM_DIR
  LLVM_MATCHED
)
  string(TOLOWER triton_${_key} _member)
  string(JSON TRITON_${_key} GET "${TRITON_TOOLCHAIN}" ${_member})
endforeach()
message(STATUS "Triton ${TRITON_VERSION}, LLVM ${TRITON_LLVM_COMMIT} (${TRITON_LLVM_MATCHED}) in ${TRITON_LLVM_DIR}")

# Stock Triton's LLVM has its ABI-breaking checks on. toolchain.py lets headers
# that have them off pass only as `nearest`: a corrected copy goes in front of
# them, and the installed header stays as it is.
file(READ ${TRITON_LLVM_DIR}/include/llvm/Config/abi-breaking.h _header)
string(REPLACE "LLVM_ENABLE_ABI_BREAKING_CHECKS 0" "LLVM_ENABLE_ABI_BREAKING_CHECKS 1" _header "${_header}")
file(CONFIGURE OUTPUT abi/llvm/Config/abi-breaking.h CONTENT "${_header}" @ONLY)

# triton_tablegen(<target> <file.td> <output> <option>...) adds what mlir-tblgen
# makes of a file to a target.
function(triton_tablegen target source output)
  get_filename_component(directory ${CMAKE_CURRENT_BINARY_DIR}/${output} DIRECTORY)
  file(MAKE_DIRECTORY ${directory})
  add_custom_command(
    OUTPUT ${output}
    COMMAND
      ${TRITON_LLVM_DIR}/bin/mlir-tblgen ${ARGN} ${PROJECT_SOURCE_DIR}/${source} -I ${PROJECT_SOURCE_DIR}/include -I
      ${TRITON_LLVM_DIR}/include -I ${TRITON_INCLUDE_DIR} -o ${output} -d ${output}.d
    DEPFILE ${output}.d
    MAIN_DEPENDENCY ${source}
    COMMENT "Generating ${output}"
    VERBATIM
  )
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${output})
endfunction()

# triton_dialect(<target> <Name>) runs mlir-tblgen's generators on those of
# include/<Name>/<Name>{Dialect,Attributes,Types,Ops,Passes}.td that exist.
function(triton_dialect target name)
  set(Dialect "Dialect.h.inc -gen-dialect-decls" "Dialect.cpp.inc -gen-dialect-defs")
  set(
    Attributes
    "Enums.h.inc -gen-enum-decls"
    "Enums.cpp.inc -gen-enum-defs"
    "Attributes.h.inc -gen-attrdef-decls"
    "Attributes.cpp.inc -gen-attrdef-defs"
  )
  set(Types "Types.h.inc -gen-typedef-decls" "Types.cpp.inc -gen-typedef-defs")
  set(Ops "Ops.h.inc -gen-op-decls" "Ops.cpp.inc -gen-op-defs")
  set(Passes "Passes.h.inc -gen-pass-decls -name=${name}")
  foreach(
    kind
    Dialect
    Attributes
    Types
    Ops
    Passes
  )
    set(source include/${name}/${name}${kind}.td)
    if(EXISTS ${PROJECT_SOURCE_DIR}/${source})
      foreach(step ${${kind}})
        separate_arguments(step)
        list(POP_FRONT step suffix)
        triton_tablegen(${target} ${source} ${name}/${name}${suffix} ${step})
      endforeach()
    endif()
  endforeach()
endfunction()
