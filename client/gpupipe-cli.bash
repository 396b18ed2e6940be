# bash completion for gpupipe-cli
_gpupipe_cli()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=

    case $before in
        --priority) words='urgent normal bulk' ;;
        --require) words='any gpu cpu' ;;
        --tail) words='error zero short' ;;
        --format) words='raw text' ;;
        run|show)
            words=$(gpupipe-cli op list --json 2>/dev/null |
                    grep -o '{"name": "[a-z0-9_]*", "doc"' | cut -d'"' -f4) ;;
        op) words='list show' ;;
        job) words='list cancel' ;;
        -i|-o|--socket)
            COMPREPLY=($(compgen -f -- "$word"))
            return ;;
        *)
            if [[ $word == -* ]]; then
                words='--socket --json -q --help'
                if [[ " ${COMP_WORDS[*]} " == *' run '* ]]; then
                    words+=' -p -i -o -f --priority --deadline --require --device --chunk --tail'
                    words+=' --format --timing --inline --no-wait'
                fi
            else
                words='run op job status ping version'
            fi ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o filenames -F _gpupipe_cli gpupipe-cli
