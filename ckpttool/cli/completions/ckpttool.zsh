#compdef ckpttool
# Completion of ckpttool for zsh. Load it with:
#     source <(ckpttool completion zsh)
# or write it to a file named _ckpttool in a directory of $fpath.

_ckpttool() {
    local line value
    local -a open_values closed_values open_lines closed_lines
    for line in "${(@f)$(_CKPTTOOL_COMPLETE=zsh "${words[1]}" "${(@Q)words[2,CURRENT-1]}" "${words[CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        value=${line%%$'\t'*}
        if [[ $value == *[/@=] ]]; then
            open_values+=("$value")
            open_lines+=("${line/$'\t'/  -- }")
        else
            closed_values+=("$value")
            closed_lines+=("${line/$'\t'/  -- }")
        fi
    done
    (( $#open_values )) && compadd -S '' -l -d open_lines -a open_values
    (( $#closed_values )) && compadd -l -d closed_lines -a closed_values
    (( $#open_values + $#closed_values ))
}

compdef _ckpttool ckpttool
# Loaded from $fpath, this file is the body of the function: do the first completion too.
if [[ ${funcstack[1]} == _ckpttool ]]; then
    _ckpttool "$@"
fi
