# Completion of tunectl for bash: commands and options from its own help, kernels from the daemon
# (only if one runs: completing must not start any).
_tunectl()
{
    local word=${COMP_WORDS[COMP_CWORD]} command="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --socket) ((i++)) ;;
        -*) ;;
        *) command=${COMP_WORDS[i]} && break ;;
        esac
    done
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$(tunectl $command --help 2> /dev/null |
            grep -o -e '--[a-z-]*' | sort -u)" -- "$word"))
    elif [[ -z $command ]]; then
        COMPREPLY=($(compgen -W "$(tunectl --help 2> /dev/null |
            sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p')" -- "$word"))
    elif [[ $command == report && ${COMP_WORDS[COMP_CWORD - 1]} != -* ||
        $command == @(sweep|get|describe|records|explain) && $i -eq $((COMP_CWORD - 1)) ]]; then
        COMPREPLY=($(compgen -W "$(TUNE_AUTOSTART=0 tunectl kernels 2> /dev/null |
            sed '1d; s/ .*//')" -- "$word"))
    elif [[ $command == @(watch|cancel) ]]; then
        COMPREPLY=($(compgen -W "$(TUNE_AUTOSTART=0 tunectl jobs 2> /dev/null |
            sed '1d; s/ .*//')" -- "$word"))
    fi
}
complete -o default -F _tunectl tunectl
