# Debian's /etc/profile resets PATH for login shells, and Ray's launcher uses login shells.
case ":$PATH:" in
    *:/opt/ray/bin:*) ;;
    *) PATH="/opt/ray/bin:$PATH" ;;
esac
export PATH LANG="${LANG:-C.UTF-8}"
