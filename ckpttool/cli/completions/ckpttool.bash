# Completion of ckpttool for bash. Load it with:
#     source <(ckpttool completion bash)

_ckpttool() {
    local candidate lines word
    COMPREPLY=()
    mapfile -t lines < <(
        _CKPTTOOL_COMPLETE=bash COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" "$1" 2>/dev/null
    )
    ((${#lines[@]})) || return 0

    # Readline replaces only what follows the last word break in the word under the
    # cursor (run/@10 breaks at the @), so the part before it must not be repeated.
    word="${COMP_WORDS[COMP_CWORD]}"
    [[ -n $word && $COMP_WORDBREAKS == *"$word"* ]] && word=""
    word="${word#[\"\']}"
    for candidate in "${lines[@]}"; do
        if [[ $candidate != "$word"* ]]; then
            local whole="${COMP_LINE:0:COMP_POINT}"
            whole="${whole##*[[:space:]]}"
            whole="${whole#[\"\']}"
            candidate="${candidate#"${whole%"$word"}"}"
        fi
        COMPREPLY+=("$candidate")
    done
    compopt -o filenames
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[/@[] ]]; then
        compopt -o nospace
    fi
}

complete -F _ckpttool ckpttool
