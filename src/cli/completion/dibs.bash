# Completion of dibs(1) for bash 3.2 and later: commands, options, columns, and the names of locks that are held.
#
# Commands and options are read from the help texts, so that they are always those of the installed command.

# The command line in words; of words that bash split at a : or a =, because of COMP_WORDBREAKS, one is made again.
_dibs_split() {
    local i word
    words=() cword=0
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((${#words[@]} > 1)) && [[ $word == [:=]* || ${COMP_WORDS[i - 1]} == *[:=] ]] && [[ $COMP_WORDBREAKS == *:* ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
    done
    cword=$((${#words[@]} - 1))
}

# Replies begin after the last : of what was typed: bash replaces only that part.
_dibs_trim() {
    local i head
    [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]] || return
    head=${cur%"${cur##*:}"}
    for ((i = 0; i < ${#COMPREPLY[@]}; i++)); do
        COMPREPLY[i]=${COMPREPLY[i]#"$head"}
    done
}

_dibs_commands() {
    local name rest in_list=
    while read -r name rest; do
        [[ -n $in_list && -n $name ]] && echo "$name"
        [[ $name == Commands: ]] && in_list=yes
        [[ -z $name ]] && in_list=
    done < <("${words[0]}" --help 2>/dev/null)
}

# Fills options with those of a command, and with_argument with those that have an argument.
_dibs_options() {
    local line found option
    while IFS= read -r line; do
        line=${line#"${line%%[! ]*}"}
        found=()
        while [[ $line == -* ]]; do
            option=${line%%[ ,]*}
            found+=("$option")
            line=${line#"$option"}
            line=${line#,}
            line=${line# }
        done
        options+=(${found[@]+"${found[@]}"})
        [[ $line == [[:upper:]]* ]] && with_argument+=(${found[@]+"${found[@]}"})
    done < <("${words[0]}" "$1" --help 2>/dev/null)
}

_dibs_has_argument() {
    local option
    for option in ${with_argument[@]+"${with_argument[@]}"}; do
        [[ $1 == "$option" ]] && return 0
    done
    return 1
}

# A word without its quotes: nothing is expanded.
_dibs_typed() {
    printf %s "${1//[\"\'\\]/}"
}

# The names of the locks that are held, in the store of this command line.
_dibs_names() {
    local name quoted i store=()
    for ((i = 2; i < cword; i++)); do
        case ${words[i]} in
        --url=* | --url-file=* | --prefix=* | --tls-*=*) store+=("$(_dibs_typed "${words[i]}")") ;;
        --url | --url-file | --prefix | --tls-*)
            ((i + 1 < cword)) && store+=("${words[i]}" "$(_dibs_typed "${words[i + 1]}")") ;;
        esac
    done
    while IFS= read -r -d '' name; do
        printf -v quoted %q "$name"
        [[ $quoted == "$cur"* || $name == "$cur"* ]] && COMPREPLY+=("$quoted")
    done < <("${words[0]}" list --null ${store[@]+"${store[@]}"} 2>/dev/null)
}

_dibs_word() {
    local command=${words[1]} i arguments=0 options=() with_argument=()
    _dibs_options "$command"
    for ((i = 2; i < cword; i++)); do
        if [[ $command == run && $arguments -gt 0 ]]; then
            [[ ${words[i]} == -- && $arguments == 1 ]] || arguments=$((arguments + 1))
        elif _dibs_has_argument "${words[i]}"; then
            i=$((i + 1))
            ((i == cword)) && arguments=-1
        elif [[ ${words[i]} != -* ]]; then
            arguments=$((arguments + 1))
        fi
    done
    if ((arguments < 0)); then
        _dibs_value "$command:${words[cword - 1]}"
    elif [[ $command == run && $arguments == 1 && $cur == -* ]]; then
        COMPREPLY=($(compgen -W '-c --command --' -- "$cur"))
    elif [[ $command == run && $arguments == 1 ]]; then
        COMPREPLY=($(compgen -c -- "$cur"))
    elif [[ $command == run && $arguments -gt 1 ]]; then
        COMPREPLY=($(compgen -f -- "$cur"))
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "${options[*]-}" -- "$cur"))
    elif [[ $command == status || ($arguments == 0 && $command =~ ^(run|hold|list|watch|break)$) ]]; then
        _dibs_names
    fi
}

# The argument of an option; $1: the command, a colon, and the option.
_dibs_value() {
    case $1 in
    list:--sort | list:-s | watch:--sort | watch:-s)
        COMPREPLY=($(compgen -W 'name owner held left waiters sharers' -- "$cur")) ;;
    *:--on-lost | run:-c | run:--command) COMPREPLY=($(compgen -c -- "$cur")) ;;
    *:--also) _dibs_names ;;
    *:--url-file | *:--tls-ca | *:--tls-cert | *:--tls-key) COMPREPLY=($(compgen -f -- "$cur")) ;;
    esac
}

_dibs() {
    local words cword cur
    _dibs_split
    cur=${words[cword]}
    COMPREPLY=()
    if ((cword == 1)); then
        COMPREPLY=($(compgen -W "$(_dibs_commands) --help --version" -- "$cur"))
    elif [[ ${words[1]} == help ]]; then
        ((cword == 2)) && COMPREPLY=($(compgen -W "$(_dibs_commands)" -- "$cur"))
    else
        _dibs_word
    fi
    _dibs_trim
}

complete -F _dibs dibs
