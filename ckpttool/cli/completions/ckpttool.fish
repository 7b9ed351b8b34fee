# Completion of ckpttool for fish. Load it with:
#     ckpttool completion fish | source
# or write it to ~/.config/fish/completions/ckpttool.fish

function __ckpttool_complete
    set -l words (commandline -opc) (commandline -ct)
    _CKPTTOOL_COMPLETE=fish $words[1] $words[2..] 2>/dev/null
end

complete -c ckpttool -f -a '(__ckpttool_complete)'
