# Completion of ckpttool for bash. Load it with:
#     source <(ckpttool completion bash)

_ckpttool() {
    # $1 is the command, $2 what readline will replace: the rest of the word after its
    # last break character (in run/@10 that is @10).
    local IFS=$'\n' kind
    {
        read -r kind # paths or words; then the candidates
        mapfile -t COMPREPLY
    } < <(
        _CKPTTOOL_COMPLETE=bash COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" COMP_WORD="$2" \
            "$1" 2>/dev/null
    )
    if [[ $kind == paths ]]; then
        compopt -o filenames # shows last parts only, and quotes them
    fi
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[/@=] ]]; then
        compopt -o nospace
    fi
}

complete -F _ckpttool ckpttool
